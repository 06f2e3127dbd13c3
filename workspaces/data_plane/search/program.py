"""Command lines of ripgrep, and what it prints. Everything it prints is a hostile guest's word."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from common.errors import ValidationError
from vmbackend.guest.output import CommandExit, OutputPart
from vmbackend.guest.own_names import OWN_PATTERNS
from vmbackend.guest.session import ExecResult
from workspaces.data_plane.search.errors import SearchFailed, SearchMemoryExceeded

LINE_LIMIT = 500  # characters of a line that are shown
# The program has whole lines of a folder's files in memory, in a buffer that is doubled. It may have so much, or half
# of what the machine has left: beyond that the kernel would kill it, or a program of the user's. This limit costs
# nothing; one of file sizes asks for the size of each file, which is 40 % of a search in small ones.
MEMORY_KIB = 192 * 1024
LEAST_MEMORY_KIB = 32 * 1024
# If the memory was not enough, files above this part of it are left out.
LARGEST_PART = 3
_LIMIT = f"""ulimit -c 0; limit={MEMORY_KIB}
while read -r name size unit; do
    [ "$name" = MemAvailable: ] || continue
    [ $((size / 2)) -ge $limit ] || limit=$((size / 2))
    break
done 2>/dev/null </proc/meminfo
[ $limit -ge {LEAST_MEMORY_KIB} ] || limit={LEAST_MEMORY_KIB}
ulimit -d $limit && exec """
# An allocation failed, or the machine's memory was used up.
OUT_OF_MEMORY = (128 + signal.SIGABRT, 128 + signal.SIGKILL)
OUTPUT_LIMIT = 8 << 20
MAX_PATH = 4096
# A match has its column, a line around it has none.
_PLACE = re.compile(rb"(\d{1,12})(?::(\d{1,12}):|-)([^\n]*)\n")
_META = re.compile(r"[\\.+*?()|\[\]{}^$#&\-~]")  # of Rust's `regex`, which accepts no other escapes
_CUT = re.compile(r" \[\.\.\. (?:omitted end of long line|\d+ more match(?:es)?)\]$")
ERROR_TAIL = 300
STDERR_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Selection:
    """The selection of files that are looked at. The patterns are globs in the syntax of gitignore."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    gitignore: bool = False
    depth: int | None = None
    hidden: bool = True
    extensions: Sequence[str] = ()

    def words(self) -> list[str]:
        """Return the options of the search program."""
        ignored = ["--no-require-git", "--no-ignore-dot", "--glob=!.git"] if self.gitignore else ["--no-ignore"]
        depth = [] if self.depth is None else [f"--max-depth={self.depth}"]
        globs = [f"--glob={pattern}" for pattern in self.include]
        globs += [f"--glob=!{pattern}" for pattern in self.exclude]
        common = ["--no-config", "--color=never", "--no-messages", "--one-file-system"]
        common += ["--hidden"] if self.hidden else []
        # Types, as globs would bring ignored files back.
        common += [f"--type-add=wanted:*.{extension}" for extension in self.extensions]
        common += ["--type=wanted"] if self.extensions else []
        if self.extensions and not self.hidden:
            globs.append("--glob=!.*")  # what a type selects is else found though it is hidden
        globs += [f"--glob=!{pattern}" for pattern in OWN_PATTERNS]  # the last one that matches decides
        return [*common, *ignored, *depth, *globs]


@dataclass(frozen=True, slots=True)
class Match:
    """A line with a match; `column` counts bytes from 1, `file` is relative, with surrogates if it is not UTF-8.

    A line around a match has the column 0.
    """

    file: str
    line: int
    column: int
    text: str


@dataclass(frozen=True, slots=True)
class LineForm:
    """The form of a search in texts. `context`: lines before and after each match."""

    case_sensitive: bool
    regex: bool
    whole_word: bool = False
    context: int = 0

    def words(self) -> list[str]:
        """Return the options of the search program that concern lines."""
        around = [f"--context={self.context}", "--no-context-separator"] if self.context else []
        return [*around, *(["--word-regexp"] if self.whole_word else [])]


def text_words(query: str, *, shape: LineForm, selection: Selection, target: str) -> list[str]:
    """Return the options that search texts of files."""
    # Line by line: what was found before the time is over is not in a buffer of the program.
    words = ["--no-heading", "--with-filename", "--line-number", "--column", "--null", "--line-buffered"]
    words += [f"--max-columns={LINE_LIMIT}", "--max-columns-preview", *selection.words(), *shape.words()]
    return [*words, *_query_words(query, case_sensitive=shape.case_sensitive, regex=shape.regex), "--", target]


def with_memory_limit(shell: Sequence[str], program: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return a command line that ends with one of OUT_OF_MEMORY if the program asks for more than it may have."""
    return [*shell, "-c", f'{_LIMIT}{shlex.join(program)} "$@"', "sh", *options]


def without_large_files(shell: Sequence[str], program: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the same for a search of files whose longest line fits into that memory."""
    largest = f"--max-filesize=$((limit / {LARGEST_PART}))K"
    return [*shell, "-c", f'{_LIMIT}{shlex.join(program)} {largest} "$@"', "sh", *options]


def name_words(query: str, *, case_sensitive: bool, regex: bool) -> list[str]:
    """Return the options that choose from NUL-terminated paths. A text is looked for in the last name only."""
    if not regex and "/" not in query:
        # The rest of the name may be no UTF-8.
        query, regex = _META.sub(r"\\\g<0>", query) + "(?-u:[^/])*$", True
    words = _query_words(query, case_sensitive=case_sensitive, regex=regex)
    return ["--no-config", "--color=never", "--null-data", *words]


def _query_words(query: str, *, case_sensitive: bool, regex: bool) -> list[str]:
    case = "--case-sensitive" if case_sensitive else "--ignore-case"
    return [case, *([] if regex else ["--fixed-strings"]), f"--regexp={query}"]


def read_matches(output: bytes) -> Iterator[Match]:
    """Yield the matches, up to the first that is incomplete."""
    return (line for line in read_lines(output) if line.column)


def read_lines(output: bytes) -> Iterator[Match]:
    """Yield the matches and the lines around them, up to the first that is incomplete. Other messages of the program
    about a file are passed over.
    """
    position = 0
    while (end := output.find(b"\0", position)) >= 0:
        # A message on a file before this one, which ends with a newline, may stand before the path.
        path = output[max(position, output.rfind(b"\n./", position, end) + 1) : end]
        place = _PLACE.match(output, end + 1)
        if place is None:
            newline = output.find(b"\n", end)
            if newline < 0:
                return
            position = newline + 1
            continue
        position = place.end()
        yield Match(_text(path[:MAX_PATH]), int(place[1]), int(place[2] or 0), shown_line(place[3]))


def shown_line(line: bytes) -> str:
    """Return a line, or its beginning."""
    text = line.decode("utf-8", "replace")
    return _CUT.sub("", text)[:LINE_LIMIT] if len(line) > LINE_LIMIT else text


def read_paths(output: bytes) -> list[str]:
    """Return the NUL-terminated paths; the last one is left out if it is incomplete."""
    return [_text(path.removeprefix(b"./")[:MAX_PATH]) for path in output.split(b"\0")[:-1] if path]


class PathReader:
    """A reader of NUL-terminated paths that come in parts, and of what the program says beside them."""

    def __init__(self) -> None:
        self._rest, self._said, self._is_found = b"", b"", False

    def take(self, part: OutputPart) -> list[str]:
        """Return the paths that this part completes. Raise SearchFailed if one is longer than any path."""
        if part.stream == "stderr":
            self._said = (self._said + part.data)[:STDERR_LIMIT]
            return []
        paths, _, self._rest = (self._rest + part.data).rpartition(b"\0")
        if len(self._rest) > 2 * MAX_PATH:
            raise SearchFailed("The machine's listing violates the protocol.")
        self._is_found = self._is_found or bool(paths)
        return read_paths(paths + b"\0")

    def result(self, end: CommandExit) -> ExecResult:
        """Return the result as that of a command whose output is at hand."""
        found = b"\0" if self._is_found else b""
        return ExecResult(end.exit_code, found, self._said, end.duration_ms, False, end.timed_out)


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def require_success(result: ExecResult) -> None:
    """Raise ValidationError for an expression or pattern that the program does not accept, SearchMemoryExceeded, and
    SearchFailed for the rest.

    The program ends with 2 also if a file could not be read. Its messages about files are suppressed, so it says
    nothing then.
    """
    if result.exit_code in OUT_OF_MEMORY and not result.timed_out:
        raise SearchMemoryExceeded
    said = result.stderr.decode("utf-8", "replace").strip()
    if not said or result.stdout or result.timed_out:
        return
    sentence = "".join(letter if letter.isprintable() else " " for letter in said)[:ERROR_TAIL]
    for mark, field in (("error parsing glob", "options"), ("regex", "query"), ("literal", "query")):
        if mark in said:
            raise ValidationError(details={field: [sentence]})
    raise SearchFailed(f"The search did not run in the machine: {sentence}")
