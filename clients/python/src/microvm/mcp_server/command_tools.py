"""Tools for programs in a workspace, and what they wrote."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

from pydantic import Field

from microvm.aio.client import AsyncMicrovm
from microvm.mcp_server.bounds import MOST_LINE, bounded_output, bounded_text
from microvm.mcp_server.results import CommandResult, LogLines
from microvm.mcp_server.tool_kinds import READ, RUN, ToolSet
from microvm.mcp_server.workspace_tools import Name


def add_command_tools(tools: ToolSet, client: AsyncMicrovm) -> None:
    found = CommandTools(client)
    tools.add(READ, found.read_logs)
    tools.add(RUN, found.run_command)


class CommandTools:
    """Each docstring is what a model reads of the tool."""

    def __init__(self, client: AsyncMicrovm) -> None:
        self._client = client

    async def run_command(
        self,
        *,
        workspace: Name,
        command: Annotated[str, Field(description="Run by sh -c.", min_length=1, max_length=100_000)],
        working_dir: Annotated[str | None, Field(description="Absolute path.")] = None,
        env: dict[str, str] | None = None,
        stdin: Annotated[
            str | None, Field(description="What it reads from standard input.", max_length=1_000_000)
        ] = None,
        user: Annotated[str | None, Field(description="As whom it runs; else as the image says.")] = None,
        timeout_seconds: Annotated[float, Field(ge=1, le=600, allow_inf_nan=False)] = 60,
    ) -> CommandResult:
        """Run a shell command in a running workspace to its end, and return its output and exit code.

        What it leaves in the background when it ends by itself goes on, without its output, until the workspace stops;
        at the timeout all that it began is killed. A command whose call is cancelled goes on until its timeout. For
        what is to last, and to be started with the workspace, use add_workload. Of each stream the beginning and the
        end are returned, 30,000 characters at most; output that is no text in base64.
        """
        given = {"working_dir": working_dir, "env": env, "stdin": stdin, "user": user}
        body: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        result = await self._client.workspaces.exec_bytes(
            workspace, cmd=command, timeout_seconds=timeout_seconds, **body
        )
        stdout, out_encoding, is_cut = bounded_output(result.stdout, is_cut=result.truncated)
        stderr, err_encoding, is_cut_too = bounded_output(result.stderr, is_cut=result.truncated)
        return CommandResult(
            exit_code=result.exit_code,
            stdout=stdout,
            stderr=stderr,
            stdout_encoding=out_encoding,
            stderr_encoding=err_encoding,
            duration_ms=result.duration_ms,
            timed_out=result.timed_out,
            truncated=is_cut or is_cut_too or result.truncated,
        )

    async def read_logs(
        self,
        workspace: Name,
        source: Annotated[
            str, Field(description="boot: the console; cmd: the main program; or a workload's name.")
        ] = "boot",
        lines: Annotated[int, Field(ge=1, le=1000, description="The last so many.")] = 100,
    ) -> LogLines:
        """Read the last lines of a log of a workspace."""
        entries = await self._client.logs.list(workspace, source=source, tail_lines=lines)
        texts = [bounded_text(entry["line"], MOST_LINE) for entry in islice(entries, lines)]
        whole, is_cut = bounded_text("\n".join(text for text, _ in texts))
        is_cut = is_cut or any(is_short for _, is_short in texts)
        return LogLines(source=source, lines=whole.split("\n") if texts else [], truncated=is_cut)
