"""Validation and encoding of parts of a boot configuration: workloads and the users' SSH keys.

Invalid input raises ValueError with a message that may be shown to the machine's owner.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from vmbackend.driver import Workload, WorkloadRestart

MAX_WORKLOADS = 64  # each costs the guest two small processes besides its own
MAX_RESTARTS = 1_000_000
MAX_RESTART_DELAY = 86_400  # seconds
MAX_PATH = 4000  # bytes; the kernel's limit is 4095, and rotated logs have a longer name
MAX_USER = 255  # bytes; the guest's buffer
MAX_KEY_LINE = 4000  # bytes; dropbear silently skips longer ones
MAIN_NAME = "cmd"  # the main program's log has this name
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_KEY = re.compile(
    r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com)"
    r" AAAA[A-Za-z0-9+/]+={0,2}( [^\x00-\x1f\x7f]*)?"
)

Pair = tuple[str, str]


def environment_entry(name: str, value: str) -> str:
    """Return `NAME=VALUE`."""
    if not name or "=" in name:
        raise ValueError(f"not a name of an environment variable: {name!r}")
    return f"{name}={value}"


def check_user(value: str) -> str:
    """Return a `USER[:GROUP]` within the guest's length limit."""
    return _check_length(value, MAX_USER, "the user's name")


def check_ssh_key(line: str) -> str:
    """Return an OpenSSH public key line without options, stripped. Raise ValueError for anything else."""
    line = line.strip()
    if not _KEY.fullmatch(line):
        raise ValueError("not an OpenSSH public key line (a type, the key and a comment, without options)")
    return _check_length(line, MAX_KEY_LINE, "the SSH key")


def ssh_key_file(lines: Iterable[str]) -> bytes:
    """Return the authorized_keys file with these lines."""
    return "".join(f"{check_ssh_key(line)}\n" for line in lines).encode("utf-8", "surrogateescape")


def encode_record(key: str, value: str) -> bytes:
    """Return the record as `src/config.c` reads it. Raise ValueError for a NUL byte."""
    if "\0" in value:
        raise ValueError(f"a NUL byte in {key}")
    return f"{key}={value}".encode("utf-8", "surrogateescape") + b"\0"


def workload_records(workload: Workload) -> bytes:
    """Return the records of one workload."""
    return b"".join(encode_record(key, value) for key, value in workload_pairs([workload]))


def workload_pairs(workloads: Sequence[Workload]) -> list[Pair]:
    """Return one `workload` record with the name, then `workload:NAME:FIELD` for each field that is set."""
    if len(workloads) > MAX_WORKLOADS:
        raise ValueError(f"more than {MAX_WORKLOADS} workloads")
    if len({workload.name for workload in workloads}) != len(workloads):
        raise ValueError("two workloads have the same name")
    return [pair for workload in workloads for pair in _pairs(workload)]


def _pairs(workload: Workload) -> list[Pair]:
    fields: list[Pair] = [("cmd", argument) for argument in _command(workload)]
    fields += [("env", environment_entry(name, value)) for name, value in workload.env.items()]
    if workload.working_dir is not None:
        fields.append(("cwd", _check_length(workload.working_dir, MAX_PATH, "the working directory")))
    if workload.user is not None:
        fields.append(("user", check_user(workload.user)))
    if workload.log_path is not None:
        fields.append(("log", _log_path(workload.log_path)))
    fields.append(("restart", WorkloadRestart(workload.restart).value))
    fields.append(("max_restarts", _number(workload.max_restarts, MAX_RESTARTS, "max_restarts")))
    fields.append(("restart_delay", _number(workload.restart_delay, MAX_RESTART_DELAY, "restart_delay")))
    named = [(f"workload:{workload.name}:{field}", value) for field, value in fields]
    return [("workload", check_workload_name(workload.name)), *named]


def check_workload_name(name: str) -> str:
    if not _NAME.fullmatch(name) or name == MAIN_NAME:
        raise ValueError(f"not a name of a workload: {name!r}")
    return name


def _command(workload: Workload) -> tuple[str, ...]:
    if not workload.cmd or not workload.cmd[0]:
        raise ValueError(f"the workload {workload.name!r} has no program")
    return workload.cmd


def _log_path(path: str) -> str:
    # A trailing slash or dot names a directory.
    if not path.startswith("/") or path.rsplit("/", 1)[-1] in ("", ".", ".."):
        raise ValueError(f"not the absolute path of a log file: {path!r}")
    return _check_length(path, MAX_PATH, "the log's path")


def _number(value: int, limit: int, name: str) -> str:
    if not 0 <= value <= limit:
        raise ValueError(f"{name} is not between 0 and {limit}")
    return str(value)


def _check_length(value: str, limit: int, what: str) -> str:
    if len(value.encode("utf-8", "surrogateescape")) > limit:
        raise ValueError(f"{what} is longer than {limit} bytes")
    return value
