"""Tools for files of a running workspace."""

from __future__ import annotations

import base64
import binascii
import re
from posixpath import join as joined
from typing import Annotated, Literal

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from microvm.aio.client import AsyncMicrovm
from microvm.mcp_server.bounds import MOST_LINE, MOST_ROWS, ListRoom, bounded_text, text_of
from microvm.mcp_server.results import Edited, Entry, FilePart, Listing, Match, Matches, Written
from microvm.mcp_server.tool_kinds import DESTROY, READ, ToolSet
from microvm.mcp_server.workspace_tools import Name

MOST_BYTES = 100_000
MOST_EDITED = 3_000_000
MOST_ENTRIES = 1000
MOST_PER_FILE = 50
MOST_MATCH = 500  # characters of a line
SEARCH_SECONDS = 60
NOT_FOUND, NOT_EXECUTABLE, TIMED_OUT = 127, 126, 124
FilePath = Annotated[str, Field(description="Absolute path in the workspace.", pattern="^/", max_length=4096)]
_LINE = re.compile(r"\./([^\0]*?):(\d+):(.*)")


def add_file_tools(tools: ToolSet, client: AsyncMicrovm) -> None:
    found = FileTools(client)
    tools.add(READ, found.list_files, found.read_file, found.search_files)
    tools.add(DESTROY, found.write_file, found.edit_file)


class FileTools:
    """Each docstring is what a model reads of the tool."""

    def __init__(self, client: AsyncMicrovm) -> None:
        self._client = client

    async def list_files(
        self, workspace: Name, path: FilePath = "/", limit: Annotated[int, Field(ge=1, le=MOST_ENTRIES)] = MOST_ROWS
    ) -> Listing:
        """List a directory of a running workspace, by name."""
        entries: list[Entry] = []
        room = ListRoom()
        async for row in self._client.files.list(workspace, path=path, page_size=min(limit + 1, MOST_ENTRIES)):
            if len(entries) == limit or not room.has_room_for(row["name"], row.get("target")):
                return Listing(path=path, entries=entries, truncated=True)
            fields = {name: row.get(name) for name in ("name", "type", "size", "modified", "target")}
            entries.append(Entry.model_validate(fields))
        return Listing(path=path, entries=entries, truncated=False)

    async def read_file(
        self,
        workspace: Name,
        path: FilePath,
        offset: Annotated[int, Field(ge=0, description="The first byte to read.")] = 0,
        limit: Annotated[int, Field(ge=1, le=MOST_BYTES, description="Bytes at most.")] = 30_000,
    ) -> FilePart:
        """Read a file, or a part of it, of a running workspace. Text as it is, other bytes in base64."""
        content, size = await self._client.files.read_part(workspace, path, offset=offset, length=limit)
        end = offset + len(content)
        has_more = end < size if size is not None else len(content) == limit
        text, encoding, length = text_of(content, has_more=has_more)
        return FilePart(
            path=path,
            content=text,
            encoding=encoding,
            offset=offset,
            length=length,
            size=size,
            truncated=has_more,
            next_offset=offset + length if has_more else None,
        )

    async def write_file(
        self,
        workspace: Name,
        path: FilePath,
        content: Annotated[str, Field(max_length=3_000_000, description="The whole new content.")],
        encoding: Literal["utf-8", "base64"] = "utf-8",
    ) -> Written:
        """Write a whole file in a running workspace. Replaces what is there; missing directories are made."""
        written = await self._client.files.write(workspace, path, _bytes_of(content, encoding))
        return Written(path=written["path"], size=written["size"])

    async def edit_file(
        self,
        workspace: Name,
        path: FilePath,
        old: Annotated[str, Field(min_length=1, max_length=MOST_BYTES, description="Text that is there, exactly.")],
        new: Annotated[str, Field(max_length=MOST_BYTES, description="What takes its place.")],
        everywhere: Annotated[
            bool, Field(description="Each time that it is there; else it must be there once.")
        ] = False,
    ) -> Edited:
        """Replace a part of a text file in a running workspace, and leave the rest of it as it is."""
        content, size = await self._client.files.read_part(workspace, path, length=MOST_EDITED + 1)
        if len(content) > MOST_EDITED or (size or 0) > MOST_EDITED:
            raise ToolError(f"The file has more than {MOST_EDITED} bytes. Edit it with a command.")
        part, given = old.encode("utf-8", "surrogatepass"), new.encode("utf-8", "surrogatepass")
        count = content.count(part)
        if not count:
            raise ToolError("The old text is not in the file. Read it with read_file: spaces and line ends count.")
        if count > 1 and not everywhere:
            raise ToolError(f"The old text is there {count} times. Give more of what is around it, or set everywhere.")
        written = await self._client.files.write(workspace, path, content.replace(part, given))
        return Edited(path=written["path"], size=written["size"], replaced=count)

    async def search_files(
        self,
        workspace: Name,
        query: Annotated[str, Field(min_length=1, max_length=1000, description="Text to find in lines of files.")],
        path: FilePath = "/",
        regex: Annotated[bool, Field(description="The query is an extended regular expression.")] = False,
        limit: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 100,
    ) -> Matches:
        """Search text files below a directory of a running workspace, with the grep of its image.

        Other file systems, as /proc, are left out.
        """
        if "\n" in query or "\0" in query:
            raise ToolError("A query is one line.")
        kind = "-E" if regex else "-F"
        grep = ["grep", "-nIH", kind, "-m", str(MOST_PER_FILE), "-e", query]
        command = ["find", ".", "-xdev", "-type", "f", "-exec", *grep, "{}", "+"]
        result = await self._client.workspaces.exec(
            workspace, cmd=command, working_dir=path, timeout_seconds=SEARCH_SECONDS
        )
        # Lines of grep: other line breaks are content of a file, which could say that another one has it.
        rows = [found for line in result["stdout"].split("\n") if (found := _LINE.fullmatch(line))]
        if not rows and result["exit_code"] in (NOT_FOUND, NOT_EXECUTABLE, TIMED_OUT):
            raise ToolError(_search_problem(result["exit_code"]))
        if not rows and (problem := result["stderr"].strip()):
            raise ToolError(f"The search failed: {bounded_text(problem, MOST_LINE)[0]}")
        matches = _matches(path, rows[:limit])
        is_cut = len(rows) > len(matches) or result["truncated"] or result["timed_out"]
        return Matches(matches=matches, truncated=is_cut)


def _matches(path: str, rows: list[re.Match[str]]) -> list[Match]:
    """As many as there is room for."""
    found: list[Match] = []
    room = ListRoom()
    for row in rows:
        match = Match(file=joined(path, row[1]), line=int(row[2]), text=bounded_text(row[3], MOST_MATCH)[0])
        if not room.has_room_for(match.file, match.text):
            break
        found.append(match)
    return found


def _search_problem(code: int) -> str:
    if code == TIMED_OUT:
        return f"Nothing was found in {SEARCH_SECONDS} seconds. Search a smaller directory."
    return "The image of this workspace has no find or grep. Read files with read_file instead."


def _bytes_of(content: str, encoding: str) -> bytes:
    if encoding == "utf-8":
        return content.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise ToolError("The content is no base64.") from error
