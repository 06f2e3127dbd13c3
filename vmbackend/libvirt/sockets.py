"""This host's TCP connections to a machine, such as those of the edge."""

from __future__ import annotations

from collections.abc import Collection

from vmbackend.guest.bootconfig import CONTROL_PORT
from vmbackend.libvirt.firewall import SSH_PORT
from vmbackend.libvirt.process import run_tool


def count_connections(ip: str) -> int:
    """Return the number of open connections, except to SSH and the control port. Raise BackendUnavailable."""
    own = (f"( dst {ip} and dport != :{CONTROL_PORT} and dport != :{SSH_PORT} )",)
    return len(run_tool(["ss", "-Hnt", "state", "established", *own]).splitlines())


def close_connections(ip: str, ports: Collection[int]) -> None:
    """Reset this host's connections to these ports. Idempotent. Raise BackendUnavailable."""
    for port in sorted(set(ports)):
        run_tool(["ss", "-HKnt", f"( dst {ip} and dport = :{port} )"])
