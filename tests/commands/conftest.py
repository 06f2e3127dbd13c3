"""Instances of stub processes: the real supervisor and launcher with programs that do not need the platform."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervise import control
from supervise.instance import Instance, load_instance
from supervise.processes import TOOLS, Process
from tests.commands.backups import fill
from tests.free_ports import free_port

CADDY = str(TOOLS / "caddy")


@pytest.fixture(autouse=True)
def no_instance_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "STATE",
        "PORT",
        "PLATFORM_STATE",
        "PLATFORM_PORT",
        "PLATFORM_BASE_URL",
        "PLATFORM_SUPERVISED",
    ):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder with a path short enough for Unix sockets."""
    path = Path(tempfile.mkdtemp(prefix="mvm-", dir="/tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def short_dir() -> Iterator[Path]:
    with short_folder() as path:
        yield path


@pytest.fixture
def make_instance(short_dir: Path) -> Iterator[Callable[[str], Instance]]:
    """Creates instances by name; those that still run at the end are stopped."""
    made: list[Instance] = []

    def make(name: str = "one") -> Instance:
        made.append(load_instance(short_dir / name, free_port()))
        return made[-1]

    yield make
    for instance in made:
        control.stop_instance(instance, lambda _: None)


def sleeping_process(name: str, code: str = "") -> Process:
    """A process that runs `code`, prints `up` and sleeps."""
    program = f"import time\n{code}\nprint('up', flush=True)\ntime.sleep(600)"
    return Process(name, (sys.executable, "-c", f"exec({program!r})"), stop_seconds=3, start_seconds=1)


@pytest.fixture
def own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLATFORM_DATABASE_URL", raising=False)
    # It would wait for what every other process of the host writes.
    monkeypatch.setattr(os, "sync", lambda: None)


@pytest.fixture
def original(make_instance: Callable[[str], Instance]) -> Instance:
    """The instance that is backed up."""
    made = make_instance("original")
    fill(made)
    return made


@pytest.fixture
def backups(short_dir: Path) -> Path:
    return short_dir / "backups"


@pytest.fixture
def target(short_dir: Path) -> Path:
    return short_dir / "target"
