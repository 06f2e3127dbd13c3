"""Databases of instances that have a server of their own."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from supervise.instance import Instance
from supervise.postgres import data_folder, make_data_folder
from supervise.postgres_server import running_server

# What a crash would lose does not matter to most tests.
UNSAFE = "fsync = off\nsynchronous_commit = off\nfull_page_writes = off\n"


@functools.cache
def _template() -> tuple[tempfile.TemporaryDirectory[str], Path]:
    """An empty database, made once for a run; it ends with the first of the two."""
    folder = tempfile.TemporaryDirectory(prefix="mvm-empty-")
    data = Path(folder.name) / "data"
    make_data_folder(data)
    with (data / "postgresql.auto.conf").open("a") as own:
        own.write(UNSAFE)
    return folder, data


def put_empty_database(instance: Instance) -> None:
    """Put an empty database where the instance's own server has it; nothing it writes waits for the disk."""
    target = data_folder(instance)
    target.parent.mkdir(mode=0o711)
    subprocess.run(["cp", "--archive", str(_template()[1]), str(target)], check=True)


@contextmanager
def own_database(instance: Instance) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the database of the instance's own server, which runs at least that long."""
    settings = instance.settings({})
    with running_server(instance, settings), psycopg.connect(settings.database_url) as connection:
        yield connection


def remove_database(instance: Instance) -> None:
    shutil.rmtree(data_folder(instance).parent)
