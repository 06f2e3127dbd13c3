"""What an instance's own Redis needs to listen to other machines: a configuration file that its command names."""

from __future__ import annotations

import os
from pathlib import Path

from common.private_network import CERTIFICATE, KEY, network_folder, stored_address
from config.env import Env
from supervise.files import write_private
from supervise.instance import Instance

# An address that is not there yet, as while a machine boots, can be listened on all the same.
_NONLOCAL_BIND = Path("/proc/sys/net/ipv4/ip_nonlocal_bind")


def redis_port(settings: Env) -> int:
    """Return the port of the instance's own Redis at the private address."""
    return settings.private_port + 1


def write_redis_configuration(instance: Instance, settings: Env) -> None:
    """Write the file; it is empty unless the instance was opened to other machines (supervise/network.py)."""
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
