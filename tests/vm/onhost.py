"""What of an instance's machines is on this host, read without the platform: /proc, /sys, nft and its folders."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from tests.vm.client import Api, until
from tests.vm.instances import RECONCILE_SECONDS, TestInstance

# What each state of a workspace has on its host.
DEFINED = frozenset({"definition", "directory", "firewall"})
RUNNING = DEFINED | {"process", "tap"}
HOLDS = {
    "running": RUNNING,
    "paused": RUNNING,
    "sleeping": DEFINED | {"memory"},
    "stopped": DEFINED,
    "failed": frozenset[str](),
    "destroyed": frozenset[str](),
}
# Two passes of the reconciliation, and the time that removing takes.
SETTLE_SECONDS = 2 * RECONCILE_SECONDS + 6


def machine_pids(instance: TestInstance) -> dict[str, int]:
    """Workspace id -> its QEMU. Fails where a workspace has two."""
    found: dict[str, int] = {}
    for entry in Path("/proc").iterdir():
        name = _machine_of(entry, instance) if entry.name.isdigit() else None
        if name is not None:
            assert name not in found, f"two machines run for {name}"
            found[name] = int(entry.name)
    return found


def _machine_of(entry: Path, instance: TestInstance) -> str | None:
    try:
        arguments = (entry / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return None
    match = re.search(rf"\0guest=mvm-{instance.id}-(\w+),", arguments)
    return match.group(1) if match else None


def on_host(instance: TestInstance, addresses: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Kind of thing -> ids of the workspaces that have one; a tap without a workspace goes by its own name."""
    firewall = guests(instance)
    subnet = instance.settings.subnet
    taps = {f"mvt{instance.id}{int(IPv4Address(ip)) - int(subnet.network_address):x}": ip for ip in addresses}
    links = [path.name for path in Path("/sys/class/net").glob(f"mvt{instance.id}*")]
    return {
        "definition": frozenset(
            path.stem.removeprefix(f"mvm-{instance.id}-") for path in instance.state.glob("libvirt/etc/qemu/mvm-*.xml")
        ),
        "directory": frozenset(path.name for path in instance.state.glob("machines/[a-z]*")),
        "firewall": frozenset(firewall),
        "memory": frozenset(saved_memory(instance)),
        "process": frozenset(machine_pids(instance)),
        "tap": frozenset(addresses[taps[link]] if link in taps else link for link in links),
    }


def saved_memory(instance: TestInstance) -> dict[str, Path]:
    """Workspace id -> the file with its saved memory, whole or not."""
    return {path.parent.name: path for path in instance.state.glob("machines/*/memory")}


def guests(instance: TestInstance) -> frozenset[str]:
    """Owners of the elements of the firewall that admits machines."""
    shown = _set(instance, "bridge", "guests")
    return frozenset(element["elem"]["comment"] for element in shown)


def outward(instance: TestInstance) -> frozenset[str]:
    """Addresses that may go out."""
    return frozenset(_set(instance, "inet", "outward"))


def resolvers(instance: TestInstance) -> frozenset[str]:
    """Machines that have a resolver of their own."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            arguments = (entry / "cmdline").read_bytes().decode(errors="replace")
            if match := re.search(rf"--conf-file={instance.state}/machines/(\w+)/resolver/resolver.conf", arguments):
                found.add(match.group(1))
    return frozenset(found)


def _reaches_out(network: Mapping[str, Any]) -> bool:
    return bool(network["allow_internet"] or network["egress"])


def _has_names(network: Mapping[str, Any]) -> bool:
    return not network["allow_internet"] and any("/" not in entry for entry in network["egress"])


def _set(instance: TestInstance, family: str, name: str) -> list[Any]:
    command = ["nft", "-j", "list", "set", family, f"mvm_{instance.id}", name]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [element for entry in json.loads(shown)["nftables"] for element in entry.get("set", {}).get("elem", [])]


def wanted(rows: Iterable[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    rows = list(rows)
    kinds = ("definition", "directory", "firewall", "memory", "process", "tap")
    return {kind: frozenset(row["id"] for row in rows if kind in HOLDS.get(row["status"], ())) for kind in kinds}


def assert_nothing_is_left_over(instance: TestInstance, api: Api, *, at_once: bool = False) -> None:
    """The host has what the rows say and nothing else, at the latest after two passes of the reconciliation.

    `at_once`: before the next pass.
    """
    seen: dict[str, Any] = {}

    def agree() -> bool:
        rows = api.rows()
        addresses = {row["ip"]: row["id"] for row in rows}
        seen["rows"] = {row["id"]: row["status"] for row in rows}
        seen["host"], seen["wanted"] = on_host(instance, addresses), wanted(rows)
        held = [row for row in rows if "firewall" in HOLDS.get(row["status"], ())]
        seen["outward"] = outward(instance) ^ {row["ip"] for row in held if _reaches_out(row["network"])}
        seen["resolvers"] = resolvers(instance) ^ {row["id"] for row in held if _has_names(row["network"])}
        return seen["host"] == seen["wanted"] and not seen["outward"] and not seen["resolvers"]

    try:
        if at_once:
            until(agree, RECONCILE_SECONDS / 3, "host and rows agree", busy=1)
        else:
            until(agree, SETTLE_SECONDS, "host and rows agree")
    except AssertionError:
        raise AssertionError(f"host and rows disagree: {seen}") from None
