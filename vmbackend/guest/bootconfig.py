"""What the host tells a machine at its start, and the form in which it travels.

The form is a block of NUL-terminated `key=value` records, read by `src/config.c`; keys may repeat. It holds
secrets, so it goes through a fw_cfg file that only root of the host can read.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vmbackend.driver import Boot
from vmbackend.errors import BackendUnavailable
from vmbackend.guest import records

FW_CFG_NAME = "opt/org.microvm.workspace/config"
CONTROL_PORT = 10022
MAX_BYTES = 256 << 10  # of a whole configuration; the guest refuses a larger one
HOST_KEY_TIMEOUT = 30.0  # seconds; making an ed25519 key takes milliseconds
INTERACTIVE_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "fish", "ksh", "mksh", "csh", "tcsh", "busybox"})


@dataclass(frozen=True, slots=True)
class GuestConfig:
    """One machine's boot configuration."""

    boot: Boot
    address: str  # with prefix: "10.0.0.5/20"
    gateway: str
    dns: tuple[str, ...]
    host_key: bytes  # dropbear's private key format
    authorized_key: str  # OpenSSH public key line of the control plane


def encode(config: GuestConfig) -> bytes:
    """The records of `config`.

    Raises ValueError for a NUL byte, a bad variable name, no program, a bad or repeated name of a workload, a number
    or path out of its bounds, an SSH key that is none, and above `MAX_BYTES` in all.
    """
    encoded = b"".join(_record(key, value) for key, value in _pairs(config))
    if len(encoded) > MAX_BYTES:
        raise ValueError(f"the machine's configuration is larger than {MAX_BYTES} bytes")
    return encoded


def is_interactive_shell(command: tuple[str, ...]) -> bool:
    """A shell without arguments ends at once where there is no terminal: no service to start."""
    return len(command) == 1 and PurePosixPath(command[0]).name in INTERACTIVE_SHELLS


def generate_host_key(path: Path) -> str:
    """Write a new dropbear ed25519 private key (mode 0600) and return its OpenSSH public line.

    An existing file is kept and its line returned, so a repeated call is harmless. Raises BackendUnavailable.
    A key cut off by a crash has the name `PATH.new` and is replaced by the next call.
    """
    if not path.exists():
        aside = path.with_name(path.name + ".new")
        aside.unlink(missing_ok=True)
        _dropbearkey("-t", "ed25519", "-f", str(aside))
        aside.chmod(0o600)
        aside.rename(path)
    lines = _dropbearkey("-y", "-f", str(path)).splitlines()
    public = next((line for line in lines if line.startswith("ssh-ed25519 ")), None)
    if public is None:
        raise BackendUnavailable("A machine's host key file holds no ed25519 key.")
    return public.strip()


def _pairs(config: GuestConfig) -> list[tuple[str, str]]:
    boot = config.boot
    pairs = [
        ("hostname", boot.hostname),
        ("address", config.address),
        ("gateway", config.gateway),
        ("host_key", config.host_key.hex()),
        ("authorized_key", config.authorized_key.strip()),
        ("cwd", boot.working_dir),
        ("user", records.user(boot.user)),
    ]
    pairs += [("dns", server) for server in config.dns]
    pairs += [("env", records.environment(name, value)) for name, value in boot.env.items()]
    return pairs + _process(boot) + _switches(boot) + records.workload_pairs(boot.workloads)


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
    # Without the switch they are no business of the guest's; they are checked all the same.
    keys = [("ssh_key", records.ssh_key(line)) for line in boot.ssh_keys]
    return pairs + keys if boot.ssh else pairs


def _record(key: str, value: str) -> bytes:
    if "\0" in value:
        raise ValueError(f"a NUL byte in {key}")
    return f"{key}={value}".encode("utf-8", "surrogateescape") + b"\0"


def _dropbearkey(*arguments: str) -> str:
    command = ["dropbearkey", *arguments]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=HOST_KEY_TIMEOUT)
    except FileNotFoundError as error:
        raise BackendUnavailable("dropbearkey is missing: install the Debian package dropbear-bin.") from error
    except (subprocess.SubprocessError, OSError) as error:
        raise BackendUnavailable("dropbearkey could not make or read a machine's host key.") from error
    return done.stdout
