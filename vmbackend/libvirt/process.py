"""Running the host's tools, and the translation of their failures."""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Callable, Collection, Sequence

from vmbackend.errors import BackendUnavailable, DeadlineExceeded

log = logging.getLogger(__name__)

_NO_LOCALE = {"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


_POLL_SECONDS = 0.1


def run_tool(
    command: Sequence[str],
    *,
    stdin: str | None = None,
    ok: Collection[int] = (0,),
    timeout: float = 60.0,
    name: str = "",
    descriptors: Sequence[int] = (),
) -> str:
    """Run a tool and return its standard output; `timeout` in seconds. `name`: if the command only leads to the tool.

    Raise BackendUnavailable. The message names the tool only; the tool's output is logged.
    """
    tool = name or command[0]
    try:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=_NO_LOCALE,
            check=False,
            pass_fds=descriptors,
        )
    except FileNotFoundError:
        raise BackendUnavailable(f"The host lacks the program {tool}.") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        log.error("%s: %s", " ".join(command), error)
        raise BackendUnavailable(f"The host's program {tool} did not finish.") from error
    if done.returncode not in ok:
        log.error("%s: rc %d: %s", " ".join(command), done.returncode, done.stderr.strip())
        raise BackendUnavailable(f"The host's program {tool} failed.")
    return done.stdout


def run_until_done(
    command: Sequence[str], *, name: str, timeout: float, descriptors: Sequence[int], give_up: Callable[[], bool]
) -> None:
    """Run a tool that may take long, and that is ended once `give_up`, which is asked often, returns true.

    Raise DeadlineExceeded, also then; BackendUnavailable if it fails.
    """
    deadline = time.monotonic() + timeout
    nothing = subprocess.DEVNULL
    try:
        with subprocess.Popen(
            command, stdin=nothing, stdout=nothing, stderr=subprocess.PIPE, env=_NO_LOCALE, pass_fds=descriptors
        ) as process:
            errors = _await_end(process, name, deadline, give_up)
    except OSError as error:
        log.exception("%s", name)
        raise BackendUnavailable(f"The host's program {name} could not be run.") from error
    if process.returncode:
        log.error("%s: rc %d: %s", " ".join(command), process.returncode, errors.decode(errors="replace").strip())
        raise BackendUnavailable(f"The host's program {name} failed.")


def _await_end(process: subprocess.Popen[bytes], name: str, deadline: float, give_up: Callable[[], bool]) -> bytes:
    """Return what the tool said on its standard error. Whatever is raised, the tool has ended."""
    try:
        while True:
            if give_up() or time.monotonic() >= deadline:
                raise DeadlineExceeded(f"The host's program {name} was ended before it was done.")
            try:
                return process.communicate(timeout=_POLL_SECONDS)[1]
            except subprocess.TimeoutExpired:
                continue
    except BaseException:
        process.kill()
        raise
