"""Files in one sandbox, with its own token.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class SandboxListRequest(TypedDict):
    """Body, or a part of it, of `sandbox_files.list`."""

    dirPath: str | dict[str, Any]
    recursive: NotRequired[bool]
    maxDepth: NotRequired[int]
    ignorePatterns: NotRequired[list[str]]
    useGitignore: NotRequired[bool]
    includeHash: NotRequired[bool]


class SandboxListResponse(TypedDict):
    """Answer, or a part of one, of `sandbox_files.list`."""

    path: str
    count: int
    files: list[SandboxFileEntry]
    truncated: bool


class SandboxFileEntry(TypedDict):
    """Answer, or a part of one, of `sandbox_files.list`."""

    name: str
    path: str
    type: str
    size: int
    modified: str
    hash: NotRequired[str]
    target: NotRequired[str]
    encodedPath: NotRequired[str]


class SandboxReadRequest(TypedDict):
    """Body, or a part of it, of `sandbox_files.get`."""

    filePath: str | dict[str, Any]
    range: NotRequired[LineRange]
    withLineNumbers: NotRequired[bool]


class LineRange(TypedDict):
    """Body, or a part of it, of `sandbox_files.get`."""

    start: NotRequired[int]
    end: NotRequired[int]


class SandboxReadResponse(TypedDict):
    """Answer, or a part of one, of `sandbox_files.get`."""

    path: str
    content: str
    size: int
    lines: NotRequired[int]
    encoding: NotRequired[str]
    encodedPath: NotRequired[str]


class SandboxCreateRequest(TypedDict):
    """Body, or a part of it, of `sandbox_files.create`."""

    fullPath: NotRequired[str | dict[str, Any]]
    parentPath: NotRequired[str | dict[str, Any]]
    fileName: NotRequired[str]
    content: NotRequired[str]
    isFolder: NotRequired[bool]


class SandboxWrittenResponse(TypedDict):
    """Answer, or a part of one, of `sandbox_files.create`."""

    path: str
    size: int
    encodedPath: NotRequired[str]


class SandboxEditRequest(TypedDict):
    """Body, or a part of it, of `sandbox_files.edit`."""

    filePath: str | dict[str, Any]
    content: NotRequired[str]
    edits: NotRequired[list[EditRequest]]


class EditRequest(TypedDict):
    """Body, or a part of it, of `sandbox_files.edit`."""

    oldText: str
    newText: str


class SandboxPathRequest(TypedDict):
    """Body, or a part of it, of `sandbox_files.delete`."""

    filePath: str | dict[str, Any]


class SandboxPathResponse(TypedDict):
    """Answer, or a part of one, of `sandbox_files.delete`."""

    path: str
    encodedPath: NotRequired[str]


class SandboxRenameRequest(TypedDict):
    """Body, or a part of it, of `sandbox_files.rename`."""

    sourcePath: str | dict[str, Any]
    destinationPath: str | dict[str, Any]


class SandboxExistsResponse(TypedDict):
    """Answer, or a part of one, of `sandbox_files.exists`."""

    exists: bool
    type: str | None


class SandboxUploadRequest(TypedDict):
    """Body, or a part of it, of `sandbox_files.upload`."""

    filePath: str | dict[str, Any]
    content: str


class SandboxSearchRequest(TypedDict):
    """Body, or a part of it, of `sandbox_files.search`."""

    query: str
    path: NotRequired[str | dict[str, Any]]
    options: NotRequired[SearchOptions]


class SearchOptions(TypedDict):
    """Body, or a part of it, of `sandbox_files.search`."""

    caseSensitive: NotRequired[bool]
    maxResults: NotRequired[int]
    include: NotRequired[list[str]]
    exclude: NotRequired[list[str]]
    regex: NotRequired[bool]


class SandboxSearchResponse(TypedDict):
    """Answer, or a part of one, of `sandbox_files.search`."""

    total: int
    duration: int
    truncated: bool
    timedOut: bool
    matches: list[SandboxMatch]


class SandboxMatch(TypedDict):
    """Answer, or a part of one, of `sandbox_files.search`."""

    file: str
    line: int
    column: int
    text: str
    encodedFile: NotRequired[str]


class SandboxNamesResponse(TypedDict):
    """Answer, or a part of one, of `sandbox_files.search_names`."""

    total: int
    duration: int
    truncated: bool
    timedOut: bool
    files: list[str]


class SandboxCommandRequest(TypedDict):
    """Body, or a part of it, of `sandbox_files.run`."""

    command: str
    cwd: NotRequired[str | dict[str, Any]]
    env: NotRequired[dict[str, str]]
    timeout: NotRequired[int]
    encoding: NotRequired[Literal["utf-8", "base64"]]


class SandboxCommandResponse(TypedDict):
    """Answer, or a part of one, of `sandbox_files.run`."""

    output: str
    error: str
    encoding: str
    lossy: bool
    exitCode: int
    duration: int
    truncated: bool
    timedOut: bool
