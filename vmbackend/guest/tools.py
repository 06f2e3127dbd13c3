"""Running the programs that build the kit, one build at a time; their failures become BackendUnavailable."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmbackend.errors import BackendUnavailable
from vmbackend.locks import wait_lock

ERROR_TAIL = 400  # characters of a program's error output that go into the message


def run_tool(*command: str, cwd: Path | None = None, timeout: float = 600.0, stdin: bytes = b"") -> bytes:
    """Run a build tool and return its output. Raise BackendUnavailable with the end of its error output."""
    try:
        # The modes of what is built must not depend on the caller's umask.
        done = subprocess.run(
            command, cwd=cwd, input=stdin, capture_output=True, timeout=timeout, check=False, umask=0o022
        )
    except FileNotFoundError as error:
        raise BackendUnavailable(f"{command[0]} is missing: install the Debian packages of the guest kit.") from error
    except subprocess.TimeoutExpired as error:
        raise BackendUnavailable(f"{command[0]} did not end within {timeout:.0f} s.") from error
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip()[-ERROR_TAIL:]
        raise BackendUnavailable(f"{command[0]} failed with code {done.returncode}: {words}")
    return done.stdout


@contextmanager
def build_lock(folder: Path, seconds: float) -> Iterator[None]:
    """Hold the lock of builds in a folder. Raise BackendUnavailable if another holds it for that long.

    Every machine's process can read the folder, and what can open a file can lock it. So the lock's file is made
    with mode 0600 and has another name than `.lock`, which earlier versions made readable.
    """
    until = time.monotonic() + seconds

    def check_deadline() -> None:
        if time.monotonic() > until:
            raise BackendUnavailable(f"Another build in {folder} did not end within {seconds:.0f} s.")

    with wait_lock(folder / ".build.lock", check_deadline):
        yield
