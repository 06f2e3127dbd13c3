"""Attempts of a machine to reach an address."""

from __future__ import annotations

from tests.vm.client import Api

CONTROL_PORT = 10022


def reached(api: Api, workspace_id: str, address: str, port: int = CONTROL_PORT) -> set[str]:
    """Protocols by which a machine reaches an address within two seconds: `tcp`, `ping`, `arp`."""
    probes = (
        f"(nc -w 2 {address} {port} </dev/null >/dev/null 2>&1 && echo tcp) &",
        f"(ping -c 1 -W 2 {address} >/dev/null 2>&1 && echo ping) &",
        f"(arping -c 2 -w 2 -I eth0 {address} | grep -q 'reply from' && echo arp) &",
        "wait",
    )
    return set(api.output(workspace_id, " ".join(probes)).split())
