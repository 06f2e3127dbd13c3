"""The boot configuration of a machine, and its encoding.

A block of NUL-terminated `key=value` records, read by `src/config.c`; keys may repeat. It contains secrets, so it is
passed in a fw_cfg file that only root of the host can read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from vmbackend.driver import Boot
from vmbackend.errors import BackendUnavailable
from vmbackend.guest import records
from vmbackend.guest.stop_signal import signal_number

FW_CFG_NAME = "opt/org.microvm.workspace/config"
CONTROL_PORT = 10022
MAX_BYTES = 256 << 10  # of a whole configuration; the guest rejects a larger one
KEY_HEAD = b"\0\0\0\x0bssh-ed25519\0\0\0\x40"  # of dropbear's key file; followed by seed and public key, 32 bytes each
SEED_BYTES = 32
SHOWN_LETTERS = 40  # of a signal that is not known
INTERACTIVE_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "fish", "ksh", "mksh", "csh", "tcsh", "busybox"})


@dataclass(frozen=True, slots=True)
class GuestConfig:
    """One machine's boot configuration."""

    boot: Boot
    address: str  # with prefix: "10.0.0.5/20"
    gateway: str
    dns: tuple[str, ...]
    host_key: bytes  # dropbear's private key format
    authorized_key: str  # OpenSSH public key lines of the control plane and the host


def encode_config(config: GuestConfig) -> bytes:
    """Return the records of `config`.

    Raise ValueError for a NUL byte, an invalid variable name, an empty program, an invalid or repeated workload name,
    a number or path out of range, an invalid SSH key, and if the total exceeds `MAX_BYTES`.
    """
    encoded = b"".join(records.encode_record(key, value) for key, value in _pairs(config))
    if len(encoded) > MAX_BYTES:
        raise ValueError(f"the machine's configuration is larger than {MAX_BYTES} bytes")
    return encoded


def is_interactive_shell(command: tuple[str, ...]) -> bool:
    """Return whether it is a shell without arguments, which exits at once without a terminal, so it is not started."""
    return len(command) == 1 and PurePosixPath(command[0]).name in INTERACTIVE_SHELLS


def generate_host_key(path: Path) -> str:
    """Write a new dropbear ed25519 private key (mode 0600) and return its OpenSSH public line.

    Idempotent: an existing file is kept and its line returned. Raise BackendUnavailable.
    After a crash an incomplete `PATH.new` may remain, which the next call replaces.
    """
    try:
        if not path.exists():
            _write_key(path)
        return _public_line(path.read_bytes())
    except OSError as error:
        raise BackendUnavailable("A machine's host key could not be written or read.") from error


def _write_key(path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    aside = path.with_name(path.name + ".new")
    aside.unlink(missing_ok=True)
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(KEY_HEAD + key.private_bytes_raw() + key.public_key().public_bytes_raw())
    aside.rename(path)


def _public_line(key: bytes) -> str:
    if not key.startswith(KEY_HEAD) or len(key) != len(KEY_HEAD) + 2 * SEED_BYTES:
        raise BackendUnavailable("A machine's host key file holds no ed25519 key.")
    private = Ed25519PrivateKey.from_private_bytes(key[len(KEY_HEAD) : len(KEY_HEAD) + SEED_BYTES])
    return private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _pairs(config: GuestConfig) -> list[tuple[str, str]]:
    boot = config.boot
    pairs = [
        ("hostname", boot.hostname),
        ("address", config.address),
        ("gateway", config.gateway),
        ("host_key", config.host_key.hex()),
        ("authorized_key", config.authorized_key.strip()),
        ("cwd", boot.working_dir),
        ("user", records.check_user(boot.user)),
        ("stop_grace", str(boot.stop_grace)),
        *_stop_signal(boot.stop_signal),
    ]
    pairs += [("dns", server) for server in config.dns]
    if boot.unassigned:
        return [*pairs, ("unassigned", "1")]
    pairs += [("directory", path) for path in boot.directories]
    pairs += [("env", records.environment_entry(name, value)) for name, value in boot.env.items()]
    return pairs + _process(boot) + _switches(boot) + records.workload_pairs(boot.workloads)


def _stop_signal(name: str) -> list[tuple[str, str]]:
    """Return the record of the stop signal. An unknown one is shown in the boot log, and must not make two lines
    there.
    """
    number = signal_number(name)
    if number is not None:
        return [("stop_signal", str(number))]
    shown = "".join(letter if letter.isprintable() else "?" for letter in name[:SHOWN_LETTERS])
    return [("unknown_stop_signal", shown)] if name else []


def _process(boot: Boot) -> list[tuple[str, str]]:
    if boot.cmd is not None:
        if not boot.cmd or not boot.cmd[0]:
            raise ValueError("the main process has no program")
        return [("cmd", argument) for argument in boot.cmd]
    if not boot.entrypoint or not boot.entrypoint[0] or is_interactive_shell(boot.entrypoint):
        return []
    return [("entrypoint", argument) for argument in boot.entrypoint]


def _switches(boot: Boot) -> list[tuple[str, str]]:
    chosen = {"wait_for_init": boot.wait_for_init, "ssh": boot.ssh, "drop_logs": not boot.keep_logs}
    pairs = [(key, "1") for key, on in chosen.items() if on]
    # Passed to the guest only with `ssh`, but always validated.
    keys = [("ssh_key", records.check_ssh_key(line)) for line in boot.ssh_keys]
    return pairs + keys if boot.ssh else pairs
