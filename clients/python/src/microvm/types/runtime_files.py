"""Files in one workspace, with a token of its runtime.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class RuntimeListResponse(TypedDict):
    """Answer, or a part of one, of `runtime_files.list`."""

    path: str
    entries: list[RuntimeEntry]
    count: int
    truncated: bool
    encodedPath: NotRequired[str]


class RuntimeEntry(TypedDict):
    """Answer, or a part of one, of `runtime_files.list`."""

    name: str
    path: str
    type: str
    size: NotRequired[int]
    modified: NotRequired[str]
    extension: NotRequired[str]
    content: NotRequired[str]
    hash: NotRequired[str]
    target: NotRequired[str]
    children: NotRequired[list[dict[str, Any]]]
    encodedPath: NotRequired[str]


class RuntimeReadResponse(TypedDict):
    """Answer, or a part of one, of `runtime_files.read`."""

    path: str
    content: str
    size: int
    lines: NotRequired[int]
    extension: str
    start_line: int
    end_line: int
    encoding: NotRequired[str]
    encodedPath: NotRequired[str]


class RuntimeWriteRequest(TypedDict):
    """Body, or a part of it, of `runtime_files.write`."""

    path: str | dict[str, Any]
    content: str
    create_dirs: NotRequired[bool]
    append: NotRequired[bool]
    mode: NotRequired[str]
    encoding: NotRequired[Literal["utf-8", "base64"]]


class RuntimeWrittenResponse(TypedDict):
    """Answer, or a part of one, of `runtime_files.write`."""

    path: str
    size: int
    encodedPath: NotRequired[str]


class RuntimeFolderRequest(TypedDict):
    """Body, or a part of it, of `runtime_files.mkdir`."""

    path: str | dict[str, Any]
    mode: NotRequired[str]


class RuntimePathResponse(TypedDict):
    """Answer, or a part of one, of `runtime_files.mkdir`."""

    path: str
    encodedPath: NotRequired[str]


class RuntimeStatResponse(TypedDict):
    """Answer, or a part of one, of `runtime_files.stat`."""

    path: str
    name: str
    type: str
    size: int
    modified: str
    permissions: str
    is_code: bool
    extension: NotRequired[str]
    symlink_target: NotRequired[str]
    encodedPath: NotRequired[str]


class RuntimeRemoveRequest(TypedDict):
    """Body, or a part of it, of `runtime_files.delete`."""

    path: NotRequired[str | dict[str, Any]]


class RuntimeSearchResponse(TypedDict):
    """Answer, or a part of one, of `runtime_files.search`."""

    query: str
    path: str
    total_files: int
    capped: bool
    results: dict[str, list[RuntimeMatch]]
    total_matches: int


class RuntimeMatch(TypedDict):
    """Answer, or a part of one, of `runtime_files.search`."""

    line: int
    column: int
    text: str
    before: NotRequired[list[str]]
    after: NotRequired[list[str]]


class RuntimeNamesResponse(TypedDict):
    """Answer, or a part of one, of `runtime_files.search_names`."""

    query: str
    path: str
    total_files: int
    capped: bool
    files: list[str]


class FileLinkRequest(TypedDict):
    """Body, or a part of it, of `runtime_files.make_link`."""

    path: str | dict[str, Any]
    method: Literal["GET", "PUT"]
    ttl_seconds: int
    max_bytes: NotRequired[int]


class FileLinkResponse(TypedDict):
    """Answer, or a part of one, of `runtime_files.make_link`."""

    url: str
    expires_at: str


class RuntimeSearchProgram(TypedDict):
    """Answer, or a part of one, of `runtime_files.find_search`."""

    installed: bool
    path: str | None
    version: str | None


class RuntimeDownloadRequest(TypedDict):
    """Body, or a part of it, of `runtime_files.download`."""

    paths: list[str | dict[str, Any]]
    exclude_patterns: NotRequired[list[str]]


class RuntimeUploadResponse(TypedDict):
    """Answer, or a part of one, of `runtime_files.upload`."""

    dest: str
    files_extracted: int
    skipped: int
