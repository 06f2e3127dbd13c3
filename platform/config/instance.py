"""Everything one instance of the platform derives from its state folder and its port.

An instance is a folder (`STATE`, default `./var`) and a port (`PORT`, default 8000). Its id is a hash of the
folder's absolute path, so two instances on one machine differ in every name on the host: bridge, subnet,
sockets, processes. What was chosen by looking at the host (the subnet) is written to `instance.json` and
stays for good, because running machines carry it.

Settings reach the processes as `PLATFORM_*` environment variables. The caller's environment wins, then
`$STATE/settings.env`, then what is derived here. This module imports no Django: it runs before anything is
installed into a database, and the commands that start and stop processes need nothing else.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dotenv import dotenv_values

ROOT = Path(__file__).resolve().parents[2]
SUBNETS = ipaddress.IPv4Network("10.128.0.0/9")
SUBNET_PREFIX = 20
# libvirt and QEMU make sockets about 45 characters below the root, and a socket's path may have 107 at most.
SHORT_PATH_LIMIT = 48


class InstanceError(Exception):
    """The instance cannot be used; the message says what a person can do about it."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance's folders and names. `short` is the state folder under a path short enough for sockets."""

    id: str
    state: Path
    short: Path
    port: int
    subnet: str

    @property
    def run_dir(self) -> Path:
        """Sockets, pid files and generated configuration; all of it is made anew by each start."""
        return self.short / "run"

    @property
    def log_dir(self) -> Path:
        return self.state / "log"

    @property
    def credentials_file(self) -> Path:
        return self.state / "credentials.env"

    def environment(self, overrides: Mapping[str, str] | None = None) -> dict[str, str]:
        """The complete `PLATFORM_*` environment of this instance; `overrides` defaults to the process's
        own.
        """
        given = os.environ if overrides is None else overrides
        values = self._derived()
        values |= _env_file(self.state / "settings.env") | _env_file(self.state / "secrets.env")
        values |= {key: value for key, value in given.items() if key.startswith("PLATFORM_")}
        # The name in the base URL is how the service is reached, so it is always an allowed one.
        name = urlsplit(values["PLATFORM_BASE_URL"]).hostname or ""
        if name not in values["PLATFORM_ALLOWED_HOSTS"].split(","):
            values["PLATFORM_ALLOWED_HOSTS"] += f",{name}"
        # A stray PLATFORM_STATE of another instance must not mix two instances' files.
        values["PLATFORM_STATE"] = str(self.state)
        values["PLATFORM_INSTANCE"] = self.id
        if "PLATFORM_CACHE_DIR" in values:
            cache = Path(values["PLATFORM_CACHE_DIR"])
            values.setdefault("PLATFORM_KIT_DIR", str(cache / "kit"))
            values.setdefault("PLATFORM_IMAGES_DIR", str(cache / "images"))
        return values

    def _derived(self) -> dict[str, str]:
        bind = os.environ.get("PLATFORM_BIND", "127.0.0.1")
        shown = bind if bind not in {"0.0.0.0", "::", ""} else "127.0.0.1"  # noqa: S104 - compared, not bound
        return {
            "PLATFORM_BIND": bind,
            "PLATFORM_PORT": str(self.port),
            "PLATFORM_BASE_URL": f"http://{shown}:{self.port}",
            # Every name below localhost is this machine, for browsers and for curl.
            "PLATFORM_PUBLIC_URL": f"http://{{hash}}.localhost:{self.port}",
            "PLATFORM_ALLOWED_HOSTS": "localhost,127.0.0.1,[::1]",
            "PLATFORM_DATABASE_URL": f"sqlite:///{self.state}/db.sqlite3",
            "PLATFORM_REDIS_URL": f"unix://{self.run_dir}/redis.sock",
            "PLATFORM_LIBVIRT_URI": f"qemu:///embed?root={self.short}/libvirt",
            "PLATFORM_HOST_NAME": _host_name(),
            "PLATFORM_SUBNET": self.subnet,
            "PLATFORM_DEFAULT_IMAGE": "localhost/workspace:latest",
            "PLATFORM_CACHE_DIR": str(self.state / "cache"),
        }


def load_instance(state: str | Path | None = None, port: int | str | None = None) -> Instance:
    """The instance of a state folder; makes the folder, its secrets and its lasting choices where they are
    missing.

    Defaults come from the variables STATE (or PLATFORM_STATE) and PORT. Safe to call at any time, also while
    the instance runs. Raises InstanceError.
    """
    folder = Path(state or os.environ.get("STATE") or os.environ.get("PLATFORM_STATE") or ROOT / "var")
    folder = folder if folder.is_absolute() else Path.cwd() / folder
    folder = Path(os.path.normpath(folder))
    if not re.fullmatch(r"[\w./@+,=-]+", str(folder), re.ASCII):
        # The path goes into make, supervisor, Caddy and libvirt configuration, each with quoting rules of
        # its own.
        raise InstanceError(f"STATE may hold letters, digits and . / @ + , = _ - only, not {str(folder)!r}.")
    number = _port(port or os.environ.get("PORT") or os.environ.get("PLATFORM_PORT") or 8000)
    instance_id = hashlib.sha256(str(folder).encode()).hexdigest()[:6]
    _make_folders(folder)
    kept = _lasting_choices(folder, instance_id)
    _ensure_secret_key(folder / "secrets.env")
    instance = Instance(instance_id, folder, Path(kept["short"]), number, kept["subnet"])
    _ensure_short_path(instance)
    return instance


def free_port(port: int, bind: str = "127.0.0.1") -> bool:
    """Whether nothing listens on `port` now."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
        except OSError:
            return False
    return True


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, beside its place and renamed: never half, never readable."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _make_folders(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("run", "log", "static", "cache"):
            (folder / name).mkdir(exist_ok=True)
        # The sockets below carry no authentication of their own.
        (folder / "run").chmod(0o700)
        (folder / "log").chmod(0o750)
    except OSError as error:
        raise InstanceError(f"The state folder {folder} cannot be made: {error.strerror}.") from error


def _lasting_choices(folder: Path, instance_id: str) -> dict[str, str]:
    path = folder / "instance.json"
    try:
        kept: dict[str, str] = json.loads(path.read_text())
    except FileNotFoundError:
        kept = {}
    except (OSError, ValueError) as error:
        raise InstanceError(f"{path} cannot be read ({error}); restore it from a backup.") from error
    if kept.get("id") == instance_id and {"short", "subnet"} <= kept.keys():
        return kept
    # A state folder that was moved is another instance: its machines' sockets and taps carry the old names.
    kept = {
        "id": instance_id,
        "short": _short_path(folder, instance_id),
        "subnet": _choose_subnet(instance_id),
    }
    write_private(path, json.dumps(kept, indent=2) + "\n")
    return kept


def _short_path(folder: Path, instance_id: str) -> str:
    if len(str(folder)) <= SHORT_PATH_LIMIT:
        return str(folder)
    base = Path("/run") if os.access("/run", os.W_OK) else Path(tempfile.gettempdir())
    return str(base / f"mvm-{instance_id}")


def _ensure_short_path(instance: Instance) -> None:
    """A long state folder is reached through a short link in /run; made at each start, as /run is empty
    after a boot.
    """
    if instance.short == instance.state:
        return
    try:
        instance.short.symlink_to(instance.state)
    except FileExistsError:
        if not instance.short.is_symlink() or instance.short.readlink() != instance.state:
            raise InstanceError(f"{instance.short} is in the way; remove it or choose a shorter STATE.") from None
    except OSError as error:
        raise InstanceError(f"{instance.short} cannot be made: {error.strerror}.") from error


def _choose_subnet(instance_id: str) -> str:
    """The first subnet, from the place the id hashes to, that overlaps no route of the host."""
    taken = _routed_networks()
    count = 2 ** (SUBNET_PREFIX - SUBNETS.prefixlen)
    size = 2 ** (32 - SUBNET_PREFIX)
    first = int(instance_id, 16) % count
    for step in range(count):
        base = SUBNETS.network_address + ((first + step) % count) * size
        subnet = ipaddress.IPv4Network((base, SUBNET_PREFIX))
        if not any(subnet.overlaps(network) for network in taken):
            return str(subnet)
    raise InstanceError(f"Every subnet of {SUBNETS} overlaps a route of this host; set PLATFORM_SUBNET.")


def _routed_networks() -> list[ipaddress.IPv4Network]:
    try:
        command = ["ip", "-j", "-4", "route", "show", "table", "all"]
        shown = subprocess.run(command, capture_output=True, check=True, timeout=10)
        destinations = [row["dst"] for row in json.loads(shown.stdout or b"[]")]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return []
    networks = []
    for destination in destinations:
        try:
            network = ipaddress.IPv4Network(destination, strict=False)
        except ValueError:
            continue  # "default" and route types
        # A route wider than ours (a VPN of all of 10/8) would leave no choice at all; ours is more specific.
        if network.prefixlen >= SUBNETS.prefixlen:
            networks.append(network)
    return networks


def _ensure_secret_key(path: Path) -> None:
    if path.exists():
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    write_private(temporary, f"PLATFORM_SECRET_KEY={secrets.token_urlsafe(48)}\n")
    try:
        os.link(temporary, path)  # unlike a rename this never replaces the key another process made just now
    except FileExistsError:
        pass
    finally:
        temporary.unlink()


def _env_file(path: Path) -> dict[str, str]:
    values = dotenv_values(path, interpolate=False) if path.exists() else {}
    return {key: value for key, value in values.items() if value is not None and key.startswith("PLATFORM_")}


def _host_name() -> str:
    name = socket.gethostname().split(".")[0].lower()
    return re.sub(r"[^a-z0-9-]", "-", name)[:40] or "host"


def _port(value: int | str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = 0
    if not 0 < number < 65536:
        raise InstanceError(f"PORT must be a number between 1 and 65535, not {value!r}.")
    return number
