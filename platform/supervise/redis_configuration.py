"""Configuration of an instance's own Redis: its users, and what it needs to listen to other machines."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from common.private_network import CERTIFICATE, KEY, network_folder, stored_address
from config.env import Env
from config.own_redis import redis_password
from supervise.files import write_private
from supervise.instance import Instance

# An address that is not there yet, as while a machine boots, can be listened on all the same.
_NONLOCAL_BIND = Path("/proc/sys/net/ipv4/ip_nonlocal_bind")


def redis_users_file(instance: Instance) -> Path:
    """Return the file of its users: Redis writes those of hosts there (common/host_access/redis_users.py)."""
    return instance.state / "redis-users.acl"


def redis_port(settings: Env) -> int:
    """Return the port of the instance's own Redis at the private address."""
    return settings.private_port + 1


def write_redis_configuration(instance: Instance, settings: Env) -> None:
    """Write the files that its command names."""
    _write_users(redis_users_file(instance), redis_password(settings.secret_key))
    address, folder = stored_address(instance.state), network_folder(instance.state)
    lines = [
        f"bind {address}",
        f"tls-port {redis_port(settings)}",
        f"tls-cert-file {folder / CERTIFICATE}",
        f"tls-key-file {folder / KEY}",
        # Machines show who they are by their password.
        "tls-auth-clients no",
        "tls-protocols TLSv1.3",
        "tcp-keepalive 30",
    ]
    write_private(instance.run_dir / "redis.conf", "".join(f"{line}\n" for line in lines) if address else "")
    if address and os.geteuid() == 0:
        _NONLOCAL_BIND.write_text("1")


def _write_users(path: Path, password: str) -> None:
    """Give the platform's own processes their password; users of hosts stay as they are."""
    known = path.read_text().splitlines() if path.exists() else []
    shown = f"#{hashlib.sha256(password.encode()).hexdigest()}" if password else "nopass"
    own = f"user default on {shown} ~* &* +@all"
    others = [line for line in known if line and not line.startswith("user default ")]
    write_private(path, "".join(f"{line}\n" for line in [own, *others]))
