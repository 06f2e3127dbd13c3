"""A process of its own that is killed (SIGKILL) in the middle of a service's work on the database of the tests.

    with killed_process() as process:
        process.killed_at(3, "workspaces.charging.services.charge_metered", BATCH=10)

One interpreter starts Django and forks for each call, so that a call costs milliseconds. It is kept for the tests that
follow with the same settings, and never touches the database itself.
"""

from __future__ import annotations

import atexit
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
NOWHERE = 0  # among the statements, of which the first is 1


class KilledProcess:
    """The interpreter that forks."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.killed_process"],
            env=environment,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def killed_at(self, statement: int, service: str, **constants: Any) -> bool:
        """Run a service and kill it once this statement of its (the first is 1) has run, before anything follows.
        False: it ended before. `constants`: of the service's module.
        """
        said = self._begin(statement, service, constants)
        if said[0] == "here":
            os.kill(int(said[1]), signal.SIGKILL)
        return self._is_killed(said)

    def kills_itself(self, service: str, **constants: Any) -> bool:
        """Run a service that ends its own process by SIGKILL. False: it came to its end."""
        return self._is_killed(self._begin(NOWHERE, service, constants))

    def end(self) -> None:
        """A process of its that still runs is not waited for."""
        self._process.kill()
        self._process.communicate()

    def _begin(self, statement: int, service: str, constants: dict[str, Any]) -> list[str]:
        assert self._process.stdin
        self._process.stdin.write(json.dumps([statement, service, constants]) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _is_killed(self, said: list[str]) -> bool:
        ended = said if said[0] == "ended" else self._read()
        assert ended in (["ended", str(-signal.SIGKILL)], ["ended", "0"]), ended
        return ended[1] != "0"

    def _read(self) -> list[str]:
        assert self._process.stdout
        return self._process.stdout.readline().split()


# The last one: the tests of a file have the same settings, and most files too.
_kept: list[KilledProcess] = []


@contextmanager
def killed_process() -> Iterator[KilledProcess]:
    """On the database of this test, which must commit what it writes (`transaction=True`)."""
    environment = _environment()
    if _kept and _kept[0].environment != environment:
        _kept.pop().end()
    if not _kept:
        _kept.append(KilledProcess(environment))
    try:
        yield _kept[0]
    except BaseException:
        # It may be in the middle of a call.
        _kept.pop().end()
        raise


@atexit.register
def _end_kept() -> None:
    for each in _kept:
        each.end()


def _environment() -> dict[str, str]:
    from django.conf import settings

    environment = {**os.environ, **settings.ENV.variables(), "PLATFORM_DATABASE_URL": database_url()}
    environment.pop("PYTEST_CURRENT_TEST", None)  # of each test another
    return environment | {"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}", "DJANGO_SETTINGS_MODULE": "config.settings"}


def database_url() -> str:
    from django.db import connection

    given = connection.settings_dict
    return f"postgresql://{given['USER']}@/{given['NAME']}?host={given['HOST']}"


def _serve() -> None:
    import django

    django.setup()
    for line in sys.stdin:
        statement, service, constants = json.loads(line)
        # Here and not in each child.
        module = import_module(service.rpartition(".")[0])
        child = os.fork()
        if not child:
            _run(statement, getattr(module, service.rpartition(".")[2]), module, constants)
        _say("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _run(statement: int, service: Any, module: Any, constants: dict[str, Any]) -> None:
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

    for constant, value in constants.items():
        setattr(module, constant, value)
    with connection.execute_wrapper(count):
        service()
    _say("done")
    os._exit(0)


def _say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _serve()
