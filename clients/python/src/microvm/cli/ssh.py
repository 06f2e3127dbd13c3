"""SSH into a workspace by this system's `ssh`, with a key that `ws` authorizes and a host key that the API names."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.profiles import config_folder
from microvm.cli.session import Session
from microvm.types.ssh import Ssh

KEY_NAME = "id_ed25519"
CONNECT_SECONDS = 15


@dataclass(frozen=True)
class SshOptions:
    """`jump` USER@HOST; `identity` a private key in place of the one that `ws` makes."""

    jump: str | None = None
    identity: str | None = None
    forwards: tuple[str, ...] = ()


def run_ssh(session: Session, workspace: str, options: SshOptions, program: Sequence[str]) -> int:
    """Run it to its end; the code of the program, or 255 where ssh itself failed.

    Raises CommandError where there is no ssh, the workspace has no address, or its SSH server could not be changed.
    """
    for tool in ("ssh", "ssh-keygen"):
        if shutil.which(tool) is None:
            raise CommandError(f"{tool} is not installed here.", "Install the OpenSSH client, or use `ws exec`.")
    key = Path(options.identity) if options.identity else own_key()
    access = authorized_access(session, workspace, key)
    with tempfile.TemporaryDirectory(prefix="ws-ssh-") as folder:
        known_hosts = Path(folder) / "known_hosts"
        known_hosts.write_text(f"{access['ssh_id']} {access['host_key']}\n")
        words = ssh_words(access, key, known_hosts, options, program)
        return _run_in_foreground(words)


def own_key() -> Path:
    """The key of `ws`, made at its first use. Raises CommandError."""
    path = config_folder() / KEY_NAME
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ws", "-f", str(path)]
        made = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if made.returncode and not path.exists():
            hint = "Make one with ssh-keygen, and name it with --identity."
            raise CommandError(f"No SSH key could be made: {made.stderr.strip()}", hint)
    return path


def authorized_access(session: Session, workspace: str, key: Path) -> Ssh:
    """SSH as the workspace has it, with this key and its server on."""
    public = key.with_name(f"{key.name}.pub")
    if not public.is_file():
        raise CommandError(f"{public} does not exist.", "ssh-keygen -y -f KEY writes a public key.", ExitCode.USAGE)
    client = session.client
    access = client.ssh.get(workspace)
    if _fingerprint(public) not in {each["fingerprint"] for each in access["keys"]}:
        session.output.say("Authorizing the key.")
        client.ssh.change_key(workspace, public_key=public.read_text().strip())
    if not access["ssh_enabled"]:
        session.output.say("Enabling SSH.")
        changed = client.ssh.enable(workspace)
        if not changed["applied"]:
            raise CommandError(changed["problem"] or "SSH could not be enabled.", "Start it with `ws start`.")
    access = client.ssh.get(workspace)
    if not access["host"] or not access["host_key"]:
        raise CommandError("The workspace has no address.", "It must run: `ws start`.", ExitCode.CONFLICT)
    return access


def ssh_words(access: Ssh, key: Path, known_hosts: Path, options: SshOptions, program: Sequence[str]) -> list[str]:
    """The command line. Only the host key that the API names is accepted.

    The words of the program are joined, and read by the shell there, as those of ssh are.
    """
    settings = {
        "UserKnownHostsFile": f'"{known_hosts}"',
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "HostKeyAlias": access["ssh_id"],
        "IdentitiesOnly": "yes",
        "ConnectTimeout": str(CONNECT_SECONDS),
        "ServerAliveInterval": "15",
        # What the user's own configuration has for other hosts: a guest gets no agent and no display of this machine,
        # and an old connection to its address may be another workspace's.
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "ControlPath": "none",
        "LogLevel": "ERROR",
    }
    words = ["ssh", "-i", str(key), "-p", str(access["port"]), "-l", access["user"]]
    words += [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    words += ["-J", options.jump] if options.jump else []
    words += [word for forward in options.forwards for word in ("-L", forward)]
    if os.isatty(0) and not program:
        words.append("-t")
    return [*words, "--", str(access["host"]), *([" ".join(program)] if program else [])]


def _fingerprint(public: Path) -> str:
    words = ["ssh-keygen", "-l", "-E", "sha256", "-f", str(public)]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    parts = found.stdout.split()
    if found.returncode or len(parts) < 2:
        raise CommandError(f"{public} is no public key.", "ssh-keygen -y -f KEY writes one.", ExitCode.USAGE)
    return parts[1]


def _run_in_foreground(words: list[str]) -> int:
    """Ctrl-C is ssh's own matter while it runs."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen(words, env=environment_of_children(), preexec_fn=_take_interrupts)  # noqa: PLW1509
        try:
            code = process.wait()
        except BaseException:  # a signal that ends `ws`
            process.terminate()
            raise
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


def environment_of_children() -> dict[str, str]:
    """Without the credentials of `ws`: a configuration of ssh may send variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MICROVM_")}


def _take_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
