"""Errors as one sentence, a hint and an exit code (docs/cli.md, Exit codes)."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from microvm.cli.printable import printable
from microvm.errors import (
    ApiError,
    Conflict,
    ConnectionFailed,
    CreditsOrRoomExhausted,
    Forbidden,
    InvalidRequest,
    NotFound,
    RateLimited,
    Unauthorized,
    WaitTimeout,
)


class ExitCode(IntEnum):
    """Exit codes of `ws`, if it does not pass on the code of a program in the workspace."""

    FAILED = 1
    USAGE = 2
    UNAUTHORIZED = 3
    NOT_FOUND = 4
    CONFLICT = 5
    EXHAUSTED = 6
    UNREACHABLE = 7
    TIMEOUT = 8
    # Of `exec`, `ssh` and `terminal`: ws itself failed, as other programs that start programs say it.
    NOT_STARTED = 125
    INTERRUPTED = 130
    BROKEN_PIPE = 141


@dataclass
class CommandError(Exception):
    """A failure that a command reports itself: a sentence, and a hint what to do about it."""

    message: str
    hint: str = ""
    code: ExitCode = ExitCode.FAILED

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class ShownFailure:
    """An error as it is shown. `source`: its machine-readable code.

    `program_code`: the code with which a shell reports a program that cannot be started, 126 or 127.
    """

    message: str
    hint: str
    exit_code: int
    source: str = ""
    request_id: str | None = None
    details: Any = None
    program_code: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "error": {
                "code": self.source or ExitCode(self.exit_code).name.lower(),
                "message": self.message,
                "hint": self.hint,
                "request_id": self.request_id,
                "exit_code": self.exit_code,
                "details": self.details,
            }
        }


_OF_API: tuple[tuple[type[ApiError], ExitCode, str], ...] = (
    (Unauthorized, ExitCode.UNAUTHORIZED, "Log in again with `ws login`, or check MICROVM_CLIENT_ID and _SECRET."),
    (Forbidden, ExitCode.UNAUTHORIZED, "This credential does not allow it; `ws profiles` shows the others."),
    (
        NotFound,
        ExitCode.NOT_FOUND,
        "`ws list`, `ws snapshot list`, `ws pages list` and `ws port list` show what there is.",
    ),
    (Conflict, ExitCode.CONFLICT, "`ws show` has its state; another operation may be going on."),
    (CreditsOrRoomExhausted, ExitCode.EXHAUSTED, "`ws credits` shows what is used; `ws rm` frees room."),
    (RateLimited, ExitCode.EXHAUSTED, "Try again later."),
    (InvalidRequest, ExitCode.USAGE, "`--help` after the command shows what it takes."),
)
_OF_SYSTEM = {
    errno.ENOENT: "Check the path.",
    errno.EACCES: "Check who may read and write it.",
    errno.EPERM: "Check who may read and write it.",
    errno.EBADF: "Is a standard stream closed? Redirect it instead, to /dev/null for nothing.",
    errno.ENOSPC: "Free some of the disk, and try again.",
}
_BY_CODE = {
    "vm_not_running": "Start it with `ws start`, or wake it with `ws wake`.",
    "path_not_found": "Check the path; paths in a workspace are absolute.",
    "path_invalid": "A folder is copied with `ws cp -r`.",
    "idle_not_supported": "`ws stop` stops it without its memory.",
    "guest_disk_full": "`ws resize --disk SIZE` gives it a larger disk; `ws exec WORKSPACE -- df -h` shows its use.",
    "SANDBOX_LIMIT_REACHED": "`ws whoami` shows the plan; `ws rm` removes a workspace.",
    "SNAPSHOT_LIMIT_REACHED": "`ws snapshot rm` removes one that is not needed any more.",
    "snapshot_not_ready": "`ws snapshot show` has its state.",
    "snapshot_incompatible": "With --no-memory it boots from the disk of the snapshot.",
    "POOL_LIMIT_REACHED": "`ws whoami` shows the plan; ask for less, or free some with `ws rm` or `ws resize`.",
    "RUNNING_POOL_REACHED": "`ws whoami` shows the plan; `ws stop` or `ws sleep` another workspace first.",
    "RESOURCE_NOT_ALLOWED": "`ws whoami` shows what the plan allows; ask for less.",
    "NAMESPACE_LIMIT_REACHED": "`ws rm` another one of this namespace, or name another with --namespace.",
    "plan_limit_exceeded": "`ws whoami` shows what the plan allows.",
    "quota_exceeded": "`ws credits` shows what is used; the owner of the account can raise the quota.",
    "namespace_suspended": "`ws credits` shows the namespaces; the owner of the account can let it go on.",
    "workload_limit_exceeded": "`ws workload rm` removes one that is not needed any more.",
    "workload_exists": "`ws workload rm` removes that one; or choose another name.",
    "command_invalid": "Check the program's path, --user and --cwd; an image may have no shell.",
    "domain_not_verified": "Set the DNS records that are shown, wait until they are known, and try again.",
}
# An answer that is none of the platform, or of another version of it.
_NOT_UNDERSTOOD = "`ws profiles` shows the address: is the platform there, and of the version that `ws --version` says?"
# Where the class of an error says something else: nothing is wrong with the call.
_CODES = {
    "domain_not_verified": ExitCode.CONFLICT,
    "RESOURCE_NOT_ALLOWED": ExitCode.EXHAUSTED,
    "NAMESPACE_LIMIT_REACHED": ExitCode.EXHAUSTED,
}
_NO_NAMESPACE = "`ws credits` lists the namespaces; without --namespace it is the account's default one."


def failure_of(error: BaseException) -> ShownFailure:
    """How an error is shown; one that nothing expects is shown by its text as well."""
    if isinstance(error, CommandError):
        return ShownFailure(printable(error.message), printable(error.hint), error.code)
    if isinstance(error, ApiError):
        return _failure_of_api(error)
    if isinstance(error, ConnectionFailed):
        hint = "Check the address of the profile (`ws profiles`), and that the service runs."
        return ShownFailure(f"The service cannot be reached: {printable(error)}", hint, ExitCode.UNREACHABLE)
    if isinstance(error, WaitTimeout):
        return ShownFailure(printable(error), "It goes on; `ws show` has its state.", ExitCode.TIMEOUT)
    if isinstance(error, OSError):
        place = f"{printable(error.filename)}: " if error.filename else ""
        hint = _OF_SYSTEM.get(error.errno or 0, "Check the path, and that it can be read or written here.")
        return ShownFailure(f"{place}{printable(error.strerror or error)}.", hint, ExitCode.FAILED)
    return _failure_of_program(error)


def _failure_of_program(error: BaseException) -> ShownFailure:
    if isinstance(error, UnicodeError):
        hint = "Give it in UTF-8; a file of any kind is copied with `ws cp`."
        return ShownFailure("An argument or the input is no text in UTF-8.", hint, ExitCode.USAGE)
    hint = "MICROVM_DEBUG=1 shows where; please report it."
    return ShownFailure(f"Unexpected: {type(error).__name__}: {printable(error)}", hint, ExitCode.FAILED)


def _failure_of_api(error: ApiError) -> ShownFailure:
    code, hint = ExitCode.FAILED, "Try again later." if error.status >= 500 else _NOT_UNDERSTOOD
    for kind, found, text in _OF_API:
        if isinstance(error, kind):
            code, hint = found, text
            break
    message = printable(error.message)
    if isinstance(error, InvalidRequest) and error.code not in _CODES and (fields := _fields(error)):
        message = f"{message} ({fields})"
    if isinstance(error, NotFound) and error.message.startswith("There is no namespace"):
        hint = _NO_NAMESPACE
    if error.retry_after:
        hint = f"Try again in {error.retry_after:g} seconds."
    code = _CODES.get(error.code, code)
    hint = _BY_CODE.get(error.code, hint)
    return ShownFailure(message, hint, code, error.code, error.request_id, error.details, _program_code(error))


def _program_code(error: ApiError) -> int | None:
    if error.code != "command_invalid" or not isinstance(error.details, dict):
        return None
    found = error.details.get("exit_code")
    return found if found in (126, 127) else None


def _fields(error: ApiError) -> str:
    """Fields with their sentences; one that the message says already is named alone, and not at all where it is."""
    if not isinstance(error.details, dict) or _program_code(error):
        return ""
    parts = []
    for name, given in error.details.items():
        text = " ".join(map(str, given)) if isinstance(given, list) else str(given)
        if text not in error.message:
            parts.append(f"{name}: {text}")
        elif str(name) not in error.message:
            parts.append(str(name))
    return printable("; ".join(parts))
