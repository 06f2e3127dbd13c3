"""Files in one workspace, with a token of its runtime.

Written by `make client`.
"""

from __future__ import annotations

from typing import Unpack

from microvm.aio.group import AsyncGroup
from microvm.types.runtime_files import (
    FileLinkRequest,
    FileLinkResponse,
    RuntimeFolderRequest,
    RuntimeListResponse,
    RuntimeNamesResponse,
    RuntimeReadResponse,
    RuntimeRemoveRequest,
    RuntimeSearchProgram,
    RuntimeSearchResponse,
    RuntimeStatResponse,
    RuntimeWriteRequest,
    RuntimeWrittenResponse,
)


class AsyncRuntimeFileRoutes(AsyncGroup):
    """Files in one workspace, with a token of its runtime."""

    async def list(
        self,
        *,
        code_files_only: bool | None = None,
        flatten: bool | None = None,
        ignore_patterns: str | None = None,
        include_content: bool | None = None,
        include_ext: str | None = None,
        include_extensions: bool | None = None,
        include_hash: bool | None = None,
        light: bool | None = None,
        max_content_budget: int | None = None,
        max_depth: int | None = None,
        nested: bool | None = None,
        path: str | None = None,
        path_filter: str | None = None,
        use_gitignore: bool | None = None,
    ) -> RuntimeListResponse:
        """The entries of a directory, or of all below it, each before those inside it, by name: at most 10,000."""
        answer: RuntimeListResponse = await self._call(
            "GET",
            "/files",
            query={
                "code_files_only": code_files_only,
                "flatten": flatten,
                "ignore_patterns": ignore_patterns,
                "include_content": include_content,
                "include_ext": include_ext,
                "include_extensions": include_extensions,
                "include_hash": include_hash,
                "light": light,
                "max_content_budget": max_content_budget,
                "max_depth": max_depth,
                "nested": nested,
                "path": path,
                "path_filter": path_filter,
                "use_gitignore": use_gitignore,
            },
        )
        return answer

    async def read(
        self,
        *,
        path: str,
        end_line: int | None = None,
        start_line: int | None = None,
        with_line_numbers: bool | None = None,
    ) -> RuntimeReadResponse:
        """The text of a file, or some of its lines; base64 of their bytes if these are not UTF-8."""
        answer: RuntimeReadResponse = await self._call(
            "GET",
            "/files/read",
            query={
                "path": path,
                "end_line": end_line,
                "start_line": start_line,
                "with_line_numbers": with_line_numbers,
            },
        )
        return answer

    async def write(self, **body: Unpack[RuntimeWriteRequest]) -> RuntimeWrittenResponse:
        """Write a file, replacing one that exists, or write to its end with `append`."""
        answer: RuntimeWrittenResponse = await self._call("POST", "/files/write", body=body)
        return answer

    async def mkdir(self, **body: Unpack[RuntimeFolderRequest]) -> None:
        """Create a directory with its parents. One that exists stays as it is."""
        await self._call("POST", "/files/mkdir", body=body, again=True)

    async def stat(self, *, path: str) -> RuntimeStatResponse:
        """The entry at a path; symbolic links are not followed."""
        answer: RuntimeStatResponse = await self._call("GET", "/files/stat", query={"path": path})
        return answer

    async def delete(self, **body: Unpack[RuntimeRemoveRequest]) -> None:
        """Remove a file, a symbolic link, or a directory with all that it contains."""
        await self._call("POST", "/files/delete", body=body)

    async def search(
        self,
        *,
        q: str,
        case_sensitive: bool | None = None,
        context_lines: int | None = None,
        file_types: str | None = None,
        ignore_patterns: str | None = None,
        include_hidden: bool | None = None,
        max_results: int | None = None,
        no_gitignore: bool | None = None,
        path: str | None = None,
        regex: bool | None = None,
        timeout: int | None = None,
        whole_word: bool | None = None,
    ) -> RuntimeSearchResponse:
        """Lines with a match in the files below a path, one match for each line."""
        answer: RuntimeSearchResponse = await self._call(
            "GET",
            "/files/search",
            query={
                "q": q,
                "case_sensitive": case_sensitive,
                "context_lines": context_lines,
                "file_types": file_types,
                "ignore_patterns": ignore_patterns,
                "include_hidden": include_hidden,
                "max_results": max_results,
                "no_gitignore": no_gitignore,
                "path": path,
                "regex": regex,
                "timeout": timeout,
                "whole_word": whole_word,
            },
        )
        return answer

    async def search_names(
        self,
        *,
        q: str,
        case_sensitive: bool | None = None,
        ignore_patterns: str | None = None,
        include_hidden: bool | None = None,
        max_results: int | None = None,
        path: str | None = None,
    ) -> RuntimeNamesResponse:
        """Files whose name has the text of the query; if it has a slash, whose path below `path` has it."""
        answer: RuntimeNamesResponse = await self._call(
            "GET",
            "/files/search/files",
            query={
                "q": q,
                "case_sensitive": case_sensitive,
                "ignore_patterns": ignore_patterns,
                "include_hidden": include_hidden,
                "max_results": max_results,
                "path": path,
            },
        )
        return answer

    async def make_link(self, **body: Unpack[FileLinkRequest]) -> FileLinkResponse:
        """Return an address that reads one file, or replaces it, without another credential."""
        answer: FileLinkResponse = await self._call("POST", "/files/links", body=body)
        return answer

    async def find_search(self) -> RuntimeSearchProgram:
        """Whether the machine has the search program. Nothing is brought there."""
        answer: RuntimeSearchProgram = await self._call("GET", "/files/search/init")
        return answer

    async def bring_search(self) -> RuntimeSearchProgram:
        """Bring the search program into the machine's memory, as the first search does. Idempotent."""
        answer: RuntimeSearchProgram = await self._call("POST", "/files/search/init", again=True)
        return answer
