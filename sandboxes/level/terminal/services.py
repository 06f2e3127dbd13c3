"""Commands of a sandbox that run to their end."""

from __future__ import annotations

from collections.abc import Mapping

from vmbackend.guest.session import ExecResult, GuestSession

OUTPUT_LIMIT = 1 << 20  # bytes of each of the two outputs
DEFAULT_MS = 30_000
MAX_MS = 600_000
MAX_COMMAND = 100_000  # bytes; the kernel's limit for one argument is 131,071


async def command_run(
    session: GuestSession, *, command: str, cwd: str | None, env: Mapping[str, str], timeout_ms: float
) -> ExecResult:
    """Run a command by `sh -c`. At the timeout all that it began is killed, in whatever session, with code 124.

    The one place that says how a command of the sandbox level is contained. Raise GuestCommandInvalid (no such
    directory), GuestUnreachable.
    """
    return await session.execute_held(
        command, env=env, working_dir=cwd, timeout=timeout_ms / 1000, max_output=OUTPUT_LIMIT
    )
