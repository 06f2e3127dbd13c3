"""Output of commands: tables for people, tab-separated lines for pipes, JSON on request."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from microvm.cli.failures import ShownFailure
from microvm.cli.printable import printable

STATUS_STYLES = {
    **dict.fromkeys(("running", "active", "ready"), "green"),
    **dict.fromkeys(("failed", "lost", "error"), "red"),
    **dict.fromkeys(("stopped", "destroyed", "disabled"), "dim"),
    **dict.fromkeys(("sleeping", "paused", "suspended"), "cyan"),
}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A column of a table: `value` reads it from a row."""

    title: str
    value: Callable[[Row], Any]


class PipedConsole(Console):
    """A reader that goes away is the same error as everywhere else."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Output:
    """Results go to stdout, everything else to stderr."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.out = PipedConsole(highlight=False, soft_wrap=True)
        self.err = PipedConsole(stderr=True, highlight=False, soft_wrap=True)

    def show_json(self, value: Any) -> None:
        """Plain ASCII: no character of a guest reaches the terminal unescaped."""
        sys.stdout.write(json.dumps(value, indent=2) + "\n")
        sys.stdout.flush()

    def show_json_line(self, value: Any) -> None:
        """One of many objects."""
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()

    def show_rows(self, columns: Sequence[Column], rows: Sequence[Row], none: str = "") -> None:
        """A list. `none` is said to people where it is empty."""
        if self.as_json:
            self.show_json(list(rows))
            return
        cells = _cells(columns, rows)
        if not self.out.is_terminal:
            _write_lines(["\t".join(line) for line in [[each.title.upper() for each in columns], *cells]])
            return
        if not rows and none:
            self.say(none)
            return
        PipedConsole(highlight=False).print(_table(columns, cells))

    def show_lines(self, values: Sequence[str]) -> None:
        """One value a line, for other programs; an array where JSON is asked for."""
        if self.as_json:
            self.show_json(list(values))
        else:
            _write_lines([printable(value) for value in values])

    def show_rows_beside(self, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        """Print the rows that an error is about on stderr, unless JSON is wanted: its error has them."""
        if not self.as_json:
            PipedConsole(stderr=True, highlight=False).print(_table(columns, _cells(columns, rows)))

    def show_object(self, value: Row, fields: Sequence[Column]) -> None:
        """One object: a line for each field."""
        if self.as_json:
            self.show_json(value)
            return
        shown = [(field.title, _cell(field.value(value))) for field in fields]
        width = max(len(title) for title, _ in shown)
        for title, text in shown:
            if text:
                line = Text.assemble((f"{title:<{width}}  ", "bold"), (text, STATUS_STYLES.get(text, "")))
                self.out.print(line)

    def show_result(self, value: Row, text: str) -> None:
        """Print the result of a change: the object as JSON, or a sentence."""
        if self.as_json:
            self.show_json(value)
        else:
            self.out.print(Text(printable(text)))

    def show_text(self, text: str) -> None:
        self.out.print(Text(printable(text)))

    def say(self, text: str) -> None:
        """To people, on stderr; not where JSON is asked for."""
        if not self.as_json:
            self.err.print(Text(printable(text), style="dim"))

    def show_note(self, text: str) -> None:
        """On stderr, also where JSON is asked for."""
        self.err.print(Text(printable(text)))

    def warn(self, text: str) -> None:
        """On stderr, always."""
        self.err.print(Text.assemble(("Warning: ", "yellow"), printable(text)))

    def show_failure(self, failure: ShownFailure) -> None:
        """A sentence and a hint, or one JSON object; on stderr."""
        if self.as_json:
            sys.stderr.write(json.dumps(failure.as_json()) + "\n")
            return
        self.err.print(Text.assemble(("Error: ", "bold red"), failure.message))
        if failure.hint:
            self.err.print(Text.assemble(("Hint: ", "bold"), failure.hint))

    @contextmanager
    def transfer_progress(self) -> Iterator[Progress]:
        """A bar on stderr for transfers; nothing where stderr is no terminal."""
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True, disable=self._is_quiet()) as progress:
            yield progress

    @contextmanager
    def step_progress(self) -> Iterator[Callable[[str, int], None]]:
        """A bar on stderr for a long operation, fed with what happens and the percent that are done.

        Where stderr is no terminal each new step is a line.
        """
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True, disable=self._is_quiet()) as progress:
            task = progress.add_task("", total=100)
            steps: list[str] = []

            def show(step: str, percent: int) -> None:
                progress.update(task, description=printable(step), completed=percent)
                if self._is_quiet() and steps[-1:] != [step]:
                    steps.append(step)
                    self.say(step)

            yield show

    def _is_quiet(self) -> bool:
        return self.as_json or not self.err.is_terminal


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return printable(", ".join(map(str, value)))
    return printable(value)


def _cells(columns: Sequence[Column], rows: Sequence[Row]) -> list[list[str]]:
    return [[_cell(column.value(row)) for column in columns] for row in rows]


def _table(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.title.upper(), overflow="fold")
    for line in cells:
        table.add_row(*(Text(text, style=STATUS_STYLES.get(text, "")) for text in line))
    return table


def _write_lines(lines: Sequence[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def close_stdout() -> None:
    """After its reader has gone: what is still buffered goes nowhere, instead of an error at the end of Python."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def drop_unwritable_output() -> None:
    """After an error: what stdout cannot take would be tried again at the end of Python, and be another error."""
    try:
        sys.stdout.flush()
    except OSError:
        close_stdout()
