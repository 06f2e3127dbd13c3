"""Files in one sandbox, with its own token.

Written by `make client`.
"""

from __future__ import annotations

from typing import Unpack

from microvm.aio.group import LONG, AsyncGroup
from microvm.types.sandbox_files import (
    SandboxCommandRequest,
    SandboxCommandResponse,
    SandboxCreateRequest,
    SandboxEditRequest,
    SandboxExistsResponse,
    SandboxListRequest,
    SandboxListResponse,
    SandboxNamesResponse,
    SandboxPathRequest,
    SandboxReadRequest,
    SandboxReadResponse,
    SandboxRenameRequest,
    SandboxSearchRequest,
    SandboxSearchResponse,
    SandboxUploadRequest,
    SandboxWrittenResponse,
)


class AsyncSandboxFileRoutes(AsyncGroup):
    """Files in one sandbox, with its own token."""

    async def list(self, **body: Unpack[SandboxListRequest]) -> SandboxListResponse:
        """The entries below a directory, each before those inside it, by name: at most 10,000 of them."""
        answer: SandboxListResponse = await self._call("POST", "/files/list", body=body, again=True)
        return answer

    async def get(self, **body: Unpack[SandboxReadRequest]) -> SandboxReadResponse:
        """The text of a file, or some of its lines; base64 of their bytes if these are not UTF-8."""
        answer: SandboxReadResponse = await self._call("POST", "/files/get", body=body, again=True)
        return answer

    async def create(self, **body: Unpack[SandboxCreateRequest]) -> SandboxWrittenResponse:
        """Create a file with this text, or a directory; missing parents are created."""
        answer: SandboxWrittenResponse = await self._call("POST", "/files/create", body=body)
        return answer

    async def edit(self, **body: Unpack[SandboxEditRequest]) -> SandboxWrittenResponse:
        """Replace a file's content, or texts in it: all edits are made, one after the other, or none."""
        answer: SandboxWrittenResponse = await self._call("POST", "/files/edit", body=body)
        return answer

    async def delete(self, **body: Unpack[SandboxPathRequest]) -> None:
        """Remove a file, a symbolic link, or a directory with all that it contains."""
        await self._call("POST", "/files/delete", body=body)

    async def rename(self, **body: Unpack[SandboxRenameRequest]) -> None:
        """Rename or move a file, a symbolic link or a directory. What exists at the destination is not replaced."""
        await self._call("POST", "/files/rename", body=body)

    async def exists(self, **body: Unpack[SandboxPathRequest]) -> SandboxExistsResponse:
        """Whether there is anything at a path; symbolic links are followed."""
        answer: SandboxExistsResponse = await self._call("POST", "/files/exists", body=body, again=True)
        return answer

    async def upload(self, **body: Unpack[SandboxUploadRequest]) -> SandboxWrittenResponse:
        """Write a file of any bytes, replacing one that exists; missing parents are created."""
        answer: SandboxWrittenResponse = await self._call("POST", "/files/upload", body=body, again=True)
        return answer

    async def search(self, **body: Unpack[SandboxSearchRequest]) -> SandboxSearchResponse:
        """Lines with a match in the files below a path, hidden and ignored ones included; one match for each line."""
        answer: SandboxSearchResponse = await self._call("POST", "/search", body=body, again=True)
        return answer

    async def search_names(self, **body: Unpack[SandboxSearchRequest]) -> SandboxNamesResponse:
        """Files whose name has the text of the query; if it has a slash, or is a regular expression, whose path
        below `path` has it. Directories are not found; limits are those of a search in texts.
        """
        answer: SandboxNamesResponse = await self._call("POST", "/search/filenames", body=body, again=True)
        return answer

    async def run(self, **body: Unpack[SandboxCommandRequest]) -> SandboxCommandResponse:
        """Run a command to its end. At the timeout it is killed, and its output so far is the answer."""
        answer: SandboxCommandResponse = await self._call("POST", "/terminal", body=body, timeout=LONG)
        return answer
