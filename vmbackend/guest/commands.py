"""Building the command line of the kit's helper, which starts every command in the guest."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmbackend.errors import BackendError, GuestCommandInvalid, GuestDiskFull, GuestKitOutdated, GuestUnreachable

TIMED_OUT = 124
CANNOT_RUN, NOT_FOUND = 126, 127
# Linux's MAX_ARG_STRLEN: no single argument or environment entry may be longer.
MAX_ARGUMENT = 128 * 1024 - 1
# Half of the kernel's limit with an 8 MiB stack; the machine's environment counts, too.
MAX_TOTAL = 1 << 20
# Begins the helper's message on standard error if it cannot start the command; a command that itself exits with 126 or
# 127 writes no such line.
START_FAILURE_PREFIX = b"guest: "
# Begins its message if its kit is too old to have such a command of its own.
_NO_APPLET = "no such applet: "
OUTDATED = "The machine's kit is older than the platform: restart the machine."
_USAGE = START_FAILURE_PREFIX + b"usage: guest run "


@dataclass(frozen=True, slots=True)
class KitPaths:
    """Paths inside the guest: the kit's programs, the writable disk and a tmpfs."""

    helper: str = "/run/kit/bin/guest"
    sftp_server: str = "/run/kit/bin/sftp-server"
    busybox: str = "/run/kit/bin/busybox"
    data: str = "/run/kit/data"
    tracking: str = "/dev/shm"  # noqa: S108  # of the guest; the file server tracks partial files here
    libraries: str = "/run/kit/lib"
    hold: str = "/hold"  # of the kit's own file system
    askpass: str = "/run/kit/bin/askpass"
    root: str = "/run/kit"


@dataclass(frozen=True, slots=True)
class RemoteCommand:
    """A command line for the SSH server, and the bytes of standard input that precede the caller's."""

    line: str
    preamble: bytes


def build_command(
    kit: KitPaths,
    command: Sequence[str] | str,
    *,
    env: Mapping[str, str] | None,
    working_dir: str | None,
    user: str | None,
    timeout: float,
    grace: float = 0.0,
    asks: bool = False,
) -> RemoteCommand:
    """Return the helper's command line; times in seconds. `asks`: its programs ask the host (asking.py).

    Raise GuestCommandInvalid for arguments that the kernel would reject.
    """
    words = ["sh", "-c", command] if isinstance(command, str) else list(command)
    options = ["--timeout", f"{max(timeout, 0.001):.3f}"]
    options += ["--grace", f"{grace:.3f}"] if grace else []
    options += ["--ask", kit.tracking] if asks else []
    return _remote(kit, [*options, *_options(env, working_dir, user)], words)


def _options(env: Mapping[str, str] | None, working_dir: str | None, user: str | None) -> list[str]:
    options: list[str] = []
    if working_dir is not None:
        options += ["--cwd", working_dir]
    if user is not None:
        options += ["--user", user]
    for name, value in (env or {}).items():
        _check_name(name)
        options += ["--env", f"{name}={value}"]
    return options


def _remote(kit: KitPaths, options: Sequence[str], words: Sequence[str]) -> RemoteCommand:
    argv = [*options, "--", *words]
    _check(words, argv)
    # Not on the command line: dropbear closes the connection for a line above 9000 bytes, and every process of the
    # guest could read it. The helper reads exactly that many bytes; the rest is the command's own input.
    block = b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in argv)
    return RemoteCommand(shlex.join([kit.helper, "run", "--stdin-args", str(len(block))]), block)


def start_failure(exit_code: int, stderr: bytes) -> str | None:
    """Return the helper's message if it could not start the command, else None. A hostile guest's words, but
    printable.
    """
    if exit_code not in (CANNOT_RUN, NOT_FOUND) or not stderr.startswith(START_FAILURE_PREFIX):
        return None
    line = stderr[len(START_FAILURE_PREFIX) :].split(b"\n", 1)[0][:200]
    # No database stores NUL, and a terminal obeys the others.
    return "".join(letter if letter.isprintable() else "?" for letter in line.decode("utf-8", "replace"))


def start_error(failure: str, exit_code: int = CANNOT_RUN) -> BackendError:
    """Return the error for the helper's message. A present lack of the machine's resources is not a fault of the
    command.
    """
    if failure.startswith(_NO_APPLET):
        return GuestKitOutdated(OUTDATED)
    reason = failure.rpartition(": ")[2].lower()
    if reason == "no space left on device":
        return GuestDiskFull(f"The machine has no room for what a command needs: {failure}")
    if reason in ("resource temporarily unavailable", "out of memory", "cannot allocate memory"):
        return GuestUnreachable(f"The machine has no processes or memory left: {failure}")
    return GuestCommandInvalid(f"The command cannot be started: {failure}", exit_code)


def refusal_error(failure: str) -> BackendError:
    """Return the error for the helper's message about a command of its own, or about a word of one that it does not
    know.
    """
    if failure.startswith((_NO_APPLET, "usage: guest ")):
        return GuestKitOutdated(OUTDATED)
    return GuestCommandInvalid(f"The machine refused: {failure}")


def is_outdated(exit_code: int, stderr: bytes) -> bool:
    """Return whether the helper does not know an option: it says so, then how it is used."""
    return exit_code == CANNOT_RUN and _USAGE in stderr[:1000]


def _check_name(name: str) -> None:
    if not name or "=" in name:
        raise GuestCommandInvalid("An environment variable's name is empty or contains '='.")


def _check(words: Sequence[str], argv: Sequence[str]) -> None:
    if not words or not words[0]:
        raise GuestCommandInvalid("The command is empty.")
    if any("\0" in word for word in argv):
        raise GuestCommandInvalid("The command or its environment contains a NUL character.")
    try:
        sizes = [len(word.encode("utf-8", "surrogateescape")) for word in argv]
    except UnicodeError as error:
        raise GuestCommandInvalid("The command or its environment contains invalid characters.") from error
    if max(sizes) > MAX_ARGUMENT or sum(sizes) > MAX_TOTAL:
        raise GuestCommandInvalid("The command or its environment is too long.")
