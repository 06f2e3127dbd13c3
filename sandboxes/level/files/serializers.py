"""Bodies of the file routes of a sandbox."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from common.fields import BoundedList, StrictBoolean, StrictInteger
from common.openapi import Success
from workspaces.data_plane.fields import FileNameField, PathField, PatternsField, TextField
from workspaces.data_plane.files.services import MAX_DEPTH

MAX_EDITS = 100
ENCODED = 'If the path is not UTF-8: its bytes, percent-encoded; `{"encoded": ...}` in a request.'


class SandboxListRequest(serializers.Serializer[Any]):
    dirPath = PathField()
    recursive = StrictBoolean(default=False)
    maxDepth = StrictInteger(min_value=1, max_value=MAX_DEPTH, default=MAX_DEPTH, help_text="With `recursive`.")
    ignorePatterns = PatternsField(help_text="In the syntax of gitignore; directories that match are not entered.")
    useGitignore = StrictBoolean(
        default=False,
        help_text="Only files that git does not ignore, and directories that have such files; nothing of `.git`.",
    )
    includeHash = StrictBoolean(default=False, help_text="SHA-256 of regular files.")


class SandboxFileEntry(serializers.Serializer[Any]):
    """Documents what `views.listed` makes."""

    name = serializers.CharField()
    path = serializers.CharField()
    type = serializers.CharField(
        help_text="`directory`, or `file` for anything else; for a symbolic link, the type of its target."
    )
    size = serializers.IntegerField()
    modified = serializers.DateTimeField()
    hash = serializers.CharField(required=False)
    target = serializers.CharField(required=False, help_text="The target of a symbolic link, as the link has it.")
    encodedPath = serializers.CharField(required=False, help_text=ENCODED)


class SandboxListResponse(Success):
    path = serializers.CharField()
    count = serializers.IntegerField()
    files = serializers.ListField(child=SandboxFileEntry())
    truncated = serializers.BooleanField(help_text="Whether there are more entries than are shown.")


class LineRange(serializers.Serializer[Any]):
    """Lines, counted from 1, both included."""

    start = StrictInteger(min_value=1, max_value=1 << 53, default=1)
    end = StrictInteger(min_value=1, max_value=1 << 53, required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("end", attrs["start"]) < attrs["start"]:
            raise serializers.ValidationError({"end": "The end is before the start."})
        return attrs


class SandboxReadRequest(serializers.Serializer[Any]):
    filePath = PathField()
    range = LineRange(required=False)
    withLineNumbers = StrictBoolean(default=False, help_text="Each line begins with its number and a tab. Text only.")


class SandboxReadResponse(Success):
    path = serializers.CharField()
    content = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes of the whole file.")
    lines = serializers.IntegerField(
        required=False, help_text="Of the whole file; absent if the file is above 64 MiB and was not read to its end."
    )
    encoding = serializers.CharField(required=False, help_text="`base64`, only if the bytes are not UTF-8.")
    encodedPath = serializers.CharField(required=False, help_text=ENCODED)


class SandboxCreateRequest(serializers.Serializer[Any]):
    fullPath = PathField(required=False)
    parentPath = PathField(required=False, help_text="With `fileName`, in place of `fullPath`.")
    fileName = FileNameField(required=False)
    content = TextField(default="")
    isFolder = StrictBoolean(default=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "fullPath" not in attrs:
            if "parentPath" not in attrs or "fileName" not in attrs:
                raise serializers.ValidationError({"fullPath": "Give `fullPath`, or `parentPath` and `fileName`."})
            joined = f"{attrs['parentPath'].rstrip('/')}/{attrs['fileName']}"
            attrs["fullPath"] = self.fields["fullPath"].run_validation(joined)
        return attrs


class EditRequest(serializers.Serializer[Any]):
    oldText = TextField(allow_empty=False)
    newText = TextField()


class EditsField(BoundedList):
    child = EditRequest()


class SandboxEditRequest(serializers.Serializer[Any]):
    filePath = PathField()
    content = TextField(required=False, help_text="The new content, in place of `edits`.")
    edits = EditsField(required=False, min_length=1, max_length=MAX_EDITS)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("content" in attrs) == ("edits" in attrs):
            raise serializers.ValidationError({"edits": "Give either `content` or `edits`."})
        return attrs


class SandboxPathRequest(serializers.Serializer[Any]):
    filePath = PathField()


class SandboxRenameRequest(serializers.Serializer[Any]):
    sourcePath = PathField()
    destinationPath = PathField()


class SandboxUploadRequest(serializers.Serializer[Any]):
    """Documented here; the body is read in constant memory (`workspaces/files/upload.py`)."""

    filePath = PathField()
    content = serializers.CharField(help_text="Base64, of at most 64 MiB decoded.")


class SandboxWrittenResponse(Success):
    path = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes; 0 for a directory.")
    encodedPath = serializers.CharField(required=False, help_text=ENCODED)


class SandboxPathResponse(Success):
    path = serializers.CharField()
    encodedPath = serializers.CharField(required=False, help_text=ENCODED)


class SandboxExistsResponse(Success):
    exists = serializers.BooleanField()
    type = serializers.CharField(allow_null=True, help_text="As in a listing; null if nothing exists at the path.")
