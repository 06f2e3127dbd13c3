"""A process of its own that is killed (SIGKILL) in the middle of a service's work on the database of the tests.

    with killed_process() as process:
        process.killed_at(3, "workspaces.charging.services.charge_metered", BATCH=10)

One interpreter starts Django and forks for each call, so that a call costs milliseconds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


class KilledProcess:
    """The interpreter that forks."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def killed_at(self, statement: int, service: str, **constants: Any) -> bool:
        """Run a service and kill it once this statement of its (the first is 1) has run, before anything follows.
        False: it ended before. `constants`: of the service's module.
        """
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([statement, service, constants]) + "\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline().split()
        if said[0] == "here":
            os.kill(int(said[1]), signal.SIGKILL)
        ended = self._process.stdout.readline().split()
        assert ended in (["ended", str(-signal.SIGKILL)], ["ended", "0"]), ended
        return said[0] == "here"


@contextmanager
def killed_process() -> Iterator[KilledProcess]:
    """On the database of this test, which must commit what it writes (`transaction=True`)."""
    from django.conf import settings

    environment = {**os.environ, **settings.ENV.variables(), "PLATFORM_DATABASE_URL": database_url()}
    environment["PYTHONPATH"] = f"{ROOT}:{ROOT / 'platform'}"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.killed_process"],
        env={**environment, "DJANGO_SETTINGS_MODULE": "config.settings"},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield KilledProcess(process)
        finally:
            process.kill()


def database_url() -> str:
    from django.db import connection

    given = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{given['NAME']}"
    return f"postgresql://{given['USER']}@/{given['NAME']}?host={given['HOST']}"


def _serve() -> None:
    import django

    django.setup()
    for line in sys.stdin:
        statement, service, constants = json.loads(line)
        child = os.fork()
        if not child:
            _run(statement, service, constants)
        _say("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _run(statement: int, service: str, constants: dict[str, Any]) -> None:
    """In the child, which never returns."""
    from django.db import connection

    seen = 0

    def count(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        nonlocal seen
        result = execute(sql, params, many, context)
        seen += 1
        if seen == statement:
            _say("here", os.getpid())
            signal.pause()
        return result

    module, _, name = service.rpartition(".")
    found = import_module(module)
    for constant, value in constants.items():
        setattr(found, constant, value)
    with connection.execute_wrapper(count):
        getattr(found, name)()
    _say("done")
    os._exit(0)


def _say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _serve()
