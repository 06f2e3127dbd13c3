"""Searches in a machine, as coroutines that take its guest's session. All of the work is the guest's."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import basename, dirname

from vmbackend.errors import GuestCommandInvalid
from vmbackend.guest.output import OutputPart
from vmbackend.guest.session import ExecResult, GuestSession, SearchTools
from vmbackend.guest.sources import closing_source
from workspaces.data_plane.search import program
from workspaces.data_plane.search.errors import SearchMemoryExceeded
from workspaces.data_plane.search.program import LineForm, Match, Selection

DEFAULT_RESULTS = 1000
MAX_RESULTS = 10_000
SEARCH_SECONDS = 30.0
STREAM_SECONDS = 3600.0  # of a listing of any size; its reader may be slow
LEAST_SECONDS = 1.0  # of a search that is repeated
# The exit code of the loader and of shells if there is no such program. The search program itself never ends with it.
NO_PROGRAM = 127

# The command line by which a target in the working directory is searched.
MakeCommand = Callable[[SearchTools, str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class TextFound:
    """Matches below `root`. `truncated`: there may be more, also in files left out; `timed_out`: for lack of time.

    `around`: the texts of all lines that came, by file and line, if lines around matches were asked for.
    """

    root: str
    matches: Sequence[Match]
    duration_ms: int
    truncated: bool
    timed_out: bool
    around: Mapping[tuple[str, int], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NamesFound:
    """Relative paths of files below `root`; the rest as `TextFound`."""

    root: str
    files: Sequence[str]
    duration_ms: int
    truncated: bool
    timed_out: bool


async def text_search(
    session: GuestSession,
    *,
    path: str,
    query: str,
    case_sensitive: bool,
    regex: bool,
    max_results: int,
    selection: Selection,
    whole_word: bool = False,
    context: int = 0,
    seconds: float = SEARCH_SECONDS,
) -> TextFound:
    """Return lines with a match, by file and line: at most `max_results`, and those found within so many seconds.

    If the program's memory is not enough for a line, large files are left out. Raise GuestPathNotFound,
    ValidationError (an expression or a pattern), SearchFailed, and as GuestSession.search_tools.
    """
    shape = LineForm(case_sensitive=case_sensitive, regex=regex, whole_word=whole_word, context=context)

    def options(target: str) -> list[str]:
        return program.text_words(query, shape=shape, selection=selection, target=target)

    def all_files(tools: SearchTools, target: str) -> list[str]:
        return program.with_memory_limit(tools.shell, tools.program, options(target))

    def small_files(tools: SearchTools, target: str) -> list[str]:
        return program.without_large_files(tools.shell, tools.program, options(target))

    until = time.monotonic() + seconds
    stop_after, left_out = (b"\n", (max_results + 1) * (1 + 2 * context)), False
    try:
        root, result = await _run_below(session, path, all_files, stop_after, seconds=seconds)
    except SearchMemoryExceeded:
        left, left_out = max(LEAST_SECONDS, until - time.monotonic()), True
        root, result = await _run_below(session, path, small_files, stop_after, seconds=left)
    lines = await asyncio.to_thread(lambda: list(program.read_lines(result.stdout)))
    matches = [line for line in lines if line.column]
    kept = sorted(matches[:max_results], key=lambda match: (match.file, match.line))
    more = left_out or result.timed_out or result.truncated or len(matches) > max_results
    around = {(line.file, line.line): line.text for line in lines} if context else {}
    return TextFound(root, kept, result.duration_ms, more, result.timed_out, around)


async def name_search(
    session: GuestSession,
    *,
    path: str,
    query: str,
    case_sensitive: bool,
    regex: bool,
    max_results: int,
    selection: Selection,
) -> NamesFound:
    """Return files whose name has the text, or whose path below `path` the expression; limits and errors as
    `text_search`.
    """
    words = program.name_words(query, case_sensitive=case_sensitive, regex=regex)

    def command(tools: SearchTools, target: str) -> list[str]:
        return _pipeline(tools, _files_words(tools, selection, target), [*tools.program, *words])

    root, result = await _run_below(session, path, command, (b"\0", max_results + 1))
    files = await asyncio.to_thread(program.read_paths, result.stdout)
    more = result.timed_out or result.truncated or len(files) > max_results
    return NamesFound(root, sorted(files[:max_results]), result.duration_ms, more, result.timed_out)


async def files_not_ignored(
    session: GuestSession, *, path: str, selection: Selection, limit: int
) -> tuple[list[str], bool]:
    """Return relative paths of the files of a directory that the selection has, and whether there are more than
    `limit`.

    Raise what `text_search` raises; DeadlineExceeded becomes an incomplete listing.
    """

    def command(tools: SearchTools, target: str) -> list[str]:
        return _files_words(tools, selection, target)

    result = await _run(session, command, path, "./", (b"\0", limit + 1))
    files = program.read_paths(result.stdout)
    return files[:limit], result.timed_out or result.truncated or len(files) > limit


async def files_streamed(session: GuestSession, *, path: str, selection: Selection) -> AsyncIterator[list[str]]:
    """Yield relative paths of the files of a directory that the selection has, by name, in lists as they are found.

    Raise ValidationError (a pattern), SearchFailed, GuestUnreachable, and as GuestSession.search_tools.
    """
    for again in (False, True):
        tools = await session.search_tools(again=again)
        words = [*tools.program, "--files", "--null", "--sort=path", *selection.words()]
        reader = program.PathReader()
        async with closing_source(session.execute_streamed(words, working_dir=path, timeout=STREAM_SECONDS)) as parts:
            async for part in parts:
                if isinstance(part, OutputPart):
                    if names := reader.take(part):
                        yield names
                elif part.exit_code != NO_PROGRAM:
                    program.require_success(reader.result(part))
                    return


async def _place(session: GuestSession, path: str) -> tuple[str, str]:
    """Return the directory to search in, and what of it: all, or one file."""
    entry = await session.stat(path)
    if entry.type == "directory":
        return path, "./"
    bare = path.rstrip("/")
    return dirname(bare), f"./{basename(bare)}"


def _files_words(tools: SearchTools, selection: Selection, target: str) -> list[str]:
    # Without a target paths begin with their first name, as `^` of an expression expects.
    return [*tools.program, "--files", "--null", *selection.words(), *(["--", target] if target != "./" else [])]


def _pipeline(tools: SearchTools, *commands: Sequence[str]) -> list[str]:
    return [*tools.shell, "-c", " | ".join(shlex.join(command) for command in commands)]


async def _run_below(
    session: GuestSession,
    path: str,
    command: MakeCommand,
    stop_after: tuple[bytes, int],
    *,
    seconds: float | None = None,
) -> tuple[str, ExecResult]:
    """Return the directory that was searched in, and the result. A path is taken for a directory until it turns out to
    be none: each question costs as much as a small search.
    """
    try:
        return path, await _run(session, command, path, "./", stop_after, seconds=seconds)
    except GuestCommandInvalid:
        root, target = await _place(session, path)
        if root == path:  # it is one, and the error another
            raise
    return root, await _run(session, command, root, target, stop_after, seconds=seconds)


async def _run(
    session: GuestSession,
    command: MakeCommand,
    root: str,
    target: str,
    stop_after: tuple[bytes, int],
    *,
    seconds: float | None = None,
) -> ExecResult:
    """Run a search program of the kit. If the machine has started again and lost the program, copy it again."""
    for again in (False, True):
        tools = await session.search_tools(again=again)
        result = await session.execute(
            command(tools, target),
            working_dir=root,
            timeout=SEARCH_SECONDS if seconds is None else seconds,
            max_output=program.OUTPUT_LIMIT,
            stop_after=stop_after,
        )
        if result.exit_code != NO_PROGRAM:
            break
    program.require_success(result)
    return result
