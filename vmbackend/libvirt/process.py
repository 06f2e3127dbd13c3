"""Running the host's tools, and the translation of their failures."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Collection, Sequence

from vmbackend.errors import BackendUnavailable

log = logging.getLogger(__name__)

_NO_LOCALE = {"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


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
