"""Progress of a management command's steps: bars on a terminal, lines everywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

Report = Callable[[int, str], None]  # percent, message


@contextmanager
def show_progress(write: Callable[[str], object], console: Console | None) -> Iterator[Callable[[str], Report]]:
    """Yield a function that begins a step with a title and returns the step's `report` function.

    `console`: the terminal, or None; then `write` gets a line whenever the message of a step changes. The terminal
    is restored also if the command is interrupted.
    """
    if console is None:
        yield lambda title: _lines(write, title)
        return
    # Titles and messages contain image names of users: brackets in them are not markup.
    columns = (
        TextColumn("{task.fields[title]}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console) as bars:
        yield lambda title: _bar(bars, title)


def _lines(write: Callable[[str], object], title: str) -> Report:
    said = ""

    def report(percent: int, message: str) -> None:
        nonlocal said
        if message != said:
            said = message
            write(f"{title}: {percent:3d}% {message}")

    return report


def _bar(bars: Progress, title: str) -> Report:
    step = bars.add_task("", total=100, title=title)

    def report(percent: int, message: str) -> None:
        bars.update(step, completed=percent, description=message)

    return report
