"""Progress of a management command's steps: bars on a terminal, lines everywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

Report = Callable[[int, str], None]  # percent, sentence


@contextmanager
def show_progress(write: Callable[[str], object], console: Console | None) -> Iterator[Callable[[str], Report]]:
    """Gives a function that begins a step by its title and returns the step's `report`.

    `console`: the terminal, else None; then `write` gets a line whenever the sentence of a step changes. The terminal
    is put right also where the command is interrupted.
    """
    if console is None:
        yield lambda title: _lines(write, title)
        return
    # Titles and sentences hold image names of users: brackets in them are no markup.
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

    def report(percent: int, sentence: str) -> None:
        nonlocal said
        if sentence != said:
            said = sentence
            write(f"{title}: {percent:3d}% {sentence}")

    return report


def _bar(bars: Progress, title: str) -> Report:
    step = bars.add_task("", total=100, title=title)

    def report(percent: int, sentence: str) -> None:
        bars.update(step, completed=percent, description=sentence)

    return report
