"""`python3 join_request.py CONTROL TOKEN STATE [ADDRESS]`: asks the control machine to take this one as a host.

The first step of `make join`, before anything but ssh-keygen is installed: this module uses the standard library alone,
and runs as a file. The answer is stored in the state folder, `joined.env` last: if that is there, this machine has
joined, and a second call with the same token does nothing. A call that died before is repeated with the same token;
another token is for a machine whose credentials were lost with the control machine's.

The token ends with the fingerprint of the authority that signed the control machine's certificate: whoever answers in
its place gets nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

# As hosts/joins.py has it.
PROTOCOL = 1
# As OCI calls them.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_SECONDS = 30.0
_PREFIX = "PLATFORM_"


class JoinError(Exception):
    """The machine has not joined; the message says what mends it."""


def main(arguments: list[str]) -> int:
    """Join, or say why not. Return the exit code."""
    os.umask(0o077)
    try:
        print(f"==> {join(*arguments)}", flush=True)  # noqa: T201
    except JoinError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def join(control: str, token: str, state: str, address: str = "") -> str:
    """Make this machine a host of `control`; return a sentence. Raise JoinError, and nothing has changed then but the
    state folder, which has this machine's number and its key.
    """
    folder = Path(state)
    used = hashlib.sha256(token.encode()).hexdigest()
    if (folder / "joined.env").exists() and _used_token(folder) in (used, ""):
        return "this machine has joined; going on"
    _require_unused(folder)
    parts = urlsplit(control)
    if (
        parts.scheme != "https"
        or not parts.hostname
        or not parts.port
        or not re.fullmatch(r"join_.+\.[0-9a-f]{64}", token)
    ):
        raise JoinError("Run the whole line that `make host-token` printed on the control machine.")
    authority = _authority(control, token.rpartition(".")[2])
    body = _description(folder, token, address or _own_address(parts.hostname, parts.port))
    answer = _ask(f"{control}/join/hosts", body, ssl.create_default_context(cadata=authority))
    for url in (answer["credentials"]["database"], answer["credentials"]["redis"]):
        _require_reachable(urlsplit(url).hostname or "", urlsplit(url).port or 0)
    _write(_network(folder) / "token", used)
    _store(folder, answer, address=body["address"])
    return f"this machine is the host {answer['host']['name']} ({answer['host']['id']})"


def _require_unused(folder: Path) -> None:
    if (folder / "postgres").exists() or (folder / "credentials.env").exists():
        raise JoinError(f"{folder} is an instance of its own: name another folder, make join STATE=...")
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)


def _authority(control: str, fingerprint: str) -> str:
    """Return the certificate of the control machine's authority, which must have this fingerprint."""
    unchecked = ssl.create_default_context()
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE  # checked by its fingerprint
    text = _read(urllib.request.Request(f"{control}/join/ca"), unchecked).decode(errors="replace")  # noqa: S310 - https
    try:
        certificate = ssl.PEM_cert_to_DER_cert(text)
    except ValueError:
        certificate = b""
    if not secrets.compare_digest(hashlib.sha256(certificate).hexdigest(), fingerprint):
        raise JoinError(f"{control} is not the machine that made this token: its certificate is another one.")
    # Not the text, in which a second certificate may follow.
    return ssl.DER_cert_to_PEM_cert(certificate)


def _description(folder: Path, token: str, address: str) -> dict[str, Any]:
    machine = platform.machine()
    name = re.sub(r"[^a-z0-9-]", "-", socket.gethostname().split(".")[0].lower())[:40]
    return {
        "token": token,
        "machine_id": _machine_id(folder / "host.id"),
        "hostname": name or "host",
        "arch": _ARCHITECTURES.get(machine, machine),
        "version": "0.1.0",
        "protocol": PROTOCOL,
        "address": address,
        "routes": _routes(),
        "clock": time.time(),
        "ssh_host_key": make_transfer_key(folder),
    }


def make_transfer_key(state: Path) -> str:
    """Return the public line of the key with which this host moves files of workspaces; made at the first call.

    Raise JoinError.
    """
    path = _network(state) / "transfer_key"
    try:
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                made = Path(folder, "key")
                _keygen("-t", "ed25519", "-N", "", "-C", "", "-f", str(made))
                made.replace(path)
        return " ".join(_keygen("-y", "-P", "", "-f", str(path)).split()[:2])
    except (OSError, subprocess.SubprocessError) as error:
        raise JoinError(f"The key {path} cannot be made or read: {error}.") from error


def _keygen(*options: str) -> str:
    done = subprocess.run(
        ["ssh-keygen", "-q", *options], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def _machine_id(path: Path) -> str:
    """Return the number of this machine, made at the first call (vmbackend/host_claim.py reads it)."""
    known = path.read_text().strip() if path.exists() else ""
    if not known:
        known = secrets.token_hex(8)
        _write(path, known)
    return known


def _routes() -> list[str]:
    """Return the networks that this machine has routes to, but for default routes."""
    shown = subprocess.run(
        ["ip", "-j", "-4", "route", "show", "table", "all"], capture_output=True, check=False, timeout=10
    )
    found = set()
    for row in json.loads(shown.stdout or b"[]"):
        try:
            network = IPv4Network(row["dst"], strict=False)
        except ValueError:
            continue  # "default"
        # A VPN of all of 10/8 would leave no choice; routes to hosts are more specific.
        if row.get("type") not in ("broadcast", "multicast") and network.prefixlen >= 9:
            found.add(str(network))
    return sorted(found)


def _own_address(host: str, port: int) -> str:
    """Return the address of this machine with which packets to the control machine leave."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port))
        except OSError as error:
            raise JoinError(f"{host} cannot be reached from this machine: {error}.") from error
        return str(probe.getsockname()[0])


def _ask(url: str, body: dict[str, Any], context: ssl.SSLContext) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310 - https
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        answer: dict[str, Any] = json.loads(_read(request, context))
    except ValueError as error:
        raise JoinError(f"{url} gave an answer that is none of the platform's.") from error
    return answer


def _read(request: urllib.request.Request, context: ssl.SSLContext) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(request, timeout=_SECONDS) as answer:
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        raise JoinError(_message(error)) from error
    except (OSError, ValueError) as error:
        raise JoinError(f"{request.full_url} does not answer: {error}.") from error


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["message"])
    except (ValueError, KeyError, TypeError):
        return f"{error.url} answered {error.code}."


def _require_reachable(host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), 10).close()
    except OSError as error:
        raise JoinError(
            f"Port {port} of {host} is closed for this machine ({error}): open it, and run this again."
        ) from error


def _store(folder: Path, answer: dict[str, Any], *, address: str) -> None:
    credentials, host = answer["credentials"], answer["host"]
    authority = _network(folder) / "ca.pem"
    _write(authority, credentials["ca"])
    own = {
        "MACHINE_ROLES": "host",
        "CONTROL_INSTANCE": answer["instance"],
        "CONTROL_KEY": credentials["host_key"],
        "HOST_NAME": host["name"],
        "HOST_ADDRESS": address,
        "SUBNET": host["subnet"],
        "DATABASE_URL": credentials["database"].replace("CA_PATH", str(authority)),
        "REDIS_URL": credentials["redis"].replace("CA_PATH", str(authority)),
        "DATA_KEY": credentials["data_key"],
        "DEMO": "false",
    }
    values = answer["settings"] | {f"{_PREFIX}{name}": value for name, value in own.items()}
    _write(folder / "joined.env", "".join(f"{name}='{value}'\n" for name, value in sorted(values.items())))


def _network(folder: Path) -> Path:
    made = folder / "network"
    made.mkdir(mode=0o700, exist_ok=True)
    return made


def _used_token(folder: Path) -> str:
    """Return the digest of the token with which the machine joined."""
    path = folder / "network" / "token"
    return path.read_text() if path.exists() else ""


def _write(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    beside.write_text(text)
    beside.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
