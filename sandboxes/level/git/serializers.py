"""Bodies of the git routes of a sandbox."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers

from common.fields import BoundedList, StrictBoolean, StrictInteger
from common.openapi import Success
from sandboxes.level.git.addresses import read_remote
from sandboxes.level.git.auth import GitAuth
from sandboxes.level.git.fields import (
    AddressField,
    BranchField,
    FileNameField,
    PersonField,
)
from workspaces.data_plane.fields import PathField, TextField

MAX_FILES = 1000
MAX_MESSAGE = 100_000
DEFAULT_HISTORY = 50
MAX_HISTORY = 1000


class RepositoryRequest(serializers.Serializer[Any]):
    repoPath = PathField()


class CloneRequest(serializers.Serializer[Any]):
    url = AddressField(help_text="`file://` and absolute paths name directories in the sandbox.")
    targetDir = PathField()
    branch = BranchField(required=False)
    auth = GitAuth(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        auth, remote = attrs.get("auth"), read_remote(attrs["url"])
        if auth is not None and (remote is None or remote.scheme not in auth.schemes):
            raise serializers.ValidationError({"auth": f"For addresses of {' and '.join(sorted(auth.schemes))} only."})
        return attrs


CLONE_EXAMPLES = [
    OpenApiExample(
        "With a token",
        value={
            "url": "https://git.example.com/team/app.git",
            "targetDir": "/app",
            "auth": {"type": "token", "token": "..."},
        },
        request_only=True,
    ),
    OpenApiExample(
        "With a key",
        value={
            "url": "git@git.example.com:team/app.git",
            "targetDir": "/app",
            "auth": {"type": "ssh", "sshKey": "-----BEGIN OPENSSH PRIVATE KEY-----\n..."},
        },
        request_only=True,
    ),
]


class ExchangeRequest(RepositoryRequest):
    branch = BranchField(
        required=False, help_text="A branch of the remote `origin`; default: the branch that the current one follows."
    )
    force = StrictBoolean(default=False)
    auth = GitAuth(required=False)


class InitRequest(RepositoryRequest):
    branch = BranchField(required=False)


class FileNamesField(BoundedList):
    child = FileNameField()


class AddRequest(RepositoryRequest):
    files = FileNamesField(
        required=False, min_length=1, max_length=MAX_FILES, help_text="Default: all changed files. Names, not patterns."
    )


class Person(serializers.Serializer[Any]):
    name = PersonField()
    email = PersonField()


class CommitRequest(RepositoryRequest):
    message = TextField(max_bytes=MAX_MESSAGE)
    author = Person(required=False, help_text="Also the committer. Default: the configured user.")

    def validate_message(self, value: str) -> str:
        if not value.strip() or "\0" in value:
            raise serializers.ValidationError("A message without NUL characters is required.")
        return value


class HistoryRequest(RepositoryRequest):
    limit = StrictInteger(min_value=1, max_value=MAX_HISTORY, default=DEFAULT_HISTORY)


class UserRequest(serializers.Serializer[Any]):
    repoPath = PathField(required=False, help_text="Default: all repositories that have no user of their own.")
    name = PersonField(required=False)
    email = PersonField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "name" not in attrs and "email" not in attrs:
            raise serializers.ValidationError({"name": "Give `name`, `email` or both."})
        return attrs


class BranchRequest(RepositoryRequest):
    branchName = BranchField()


class NewBranchRequest(BranchRequest):
    checkout = StrictBoolean(default=False, help_text="Also check the new branch out.")


class GitHeadResponse(Success):
    message = serializers.CharField()
    branch = serializers.CharField(allow_null=True, help_text="Null if HEAD is detached.")
    commit = serializers.CharField(allow_null=True, help_text="Null if there is no commit yet.")


class GitCheckResponse(Success):
    isRepository = serializers.BooleanField()
    path = serializers.CharField(allow_null=True, help_text="The top of the working tree.")


class GitStatusResponse(Success):
    branch = serializers.CharField(allow_null=True)
    commit = serializers.CharField(allow_null=True)
    upstream = serializers.CharField(allow_null=True)
    ahead = serializers.IntegerField()
    behind = serializers.IntegerField()
    staged = serializers.ListField(child=serializers.CharField())
    modified = serializers.ListField(
        child=serializers.CharField(), help_text="Changes that are not staged; removed files included."
    )
    untracked = serializers.ListField(child=serializers.CharField())
    conflicted = serializers.ListField(child=serializers.CharField())
    encodedPaths = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()),
        required=False,
        help_text="Only if some of these paths are not UTF-8: each path as shown above -> percent-encoded bytes of the "
        "paths that are shown so, which `git/add` takes as `encoded`.",
    )
    truncated = serializers.BooleanField(
        required=False, help_text="Present, and true, only if there are more files than are shown."
    )


class GitMessageResponse(Success):
    message = serializers.CharField()


class GitCommitResponse(Success):
    commit = serializers.CharField()
    files = serializers.IntegerField()
    insertions = serializers.IntegerField()
    deletions = serializers.IntegerField()


class GitCommitEntry(serializers.Serializer[Any]):
    hash = serializers.CharField()
    message = serializers.CharField()
    author = serializers.CharField()
    email = serializers.CharField()
    date = serializers.CharField(help_text="When it was written, ISO 8601 in UTC.")


class GitHistoryResponse(Success):
    commits = serializers.ListField(child=GitCommitEntry())


class GitBranchesResponse(Success):
    branches = serializers.ListField(child=serializers.CharField())
    current = serializers.CharField(allow_null=True)
    truncated = serializers.BooleanField(
        required=False, help_text="Present, and true, only if there are more branches than the 10,000 that are shown."
    )
