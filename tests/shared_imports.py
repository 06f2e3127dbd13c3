"""A pytest plugin (`-p tests.shared_imports`, in pyproject.toml): the processes of a run share the rewriting of tests.

pytest rewrites the asserts of a module when it is imported first, and keeps the result beside it. Processes that start
together on a fresh checkout would each do so with every module. Each imports a share of the files before it collects
all, and finds those of the others rewritten.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.marked_files import is_read


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    process: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if process is None:
        return
    number = int(process["workerid"].removeprefix("gw"))
    for path in sorted(files_of_run(session.config))[number :: process["workercount"]]:
        # What is wrong with a file is reported when it is collected.
        with suppress(Exception):
            importlib.import_module(".".join(path.relative_to(session.config.rootpath).with_suffix("").parts))


def files_of_run(config: pytest.Config) -> Iterator[Path]:
    """The files that this run collects, by its arguments."""
    for argument in config.args:
        place = config.rootpath / argument.partition("::")[0]
        for path in place.rglob("test_*.py") if place.is_dir() else [place]:
            if is_read(path, config.getoption("markexpr")):
                yield path
