"""The machines' network on the host: an own bridge, the firewall (`firewall.py`) and the resolvers (`resolver.py`).

Guests do not see each other: their bridge ports are isolated (libvirt does that before a tap is up) and routing from
the bridge back to it is dropped. What a machine may do is changed in one transaction, and each `guests` element carries
the machine's id as its comment, so the firewall itself tells whose it is. Tables of other names are never touched.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.firewall import NAME_SECONDS, Firewall, NetworkPort, mac_for
from vmbackend.libvirt.process import run_tool
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.resolver import Resolver, stop_other_resolvers
from vmbackend.libvirt.settings import LibvirtSettings

log = logging.getLogger(__name__)

_NET = Path("/sys/class/net")
_IP_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
# No machine's id begins with a dot.
_SHARED = ".network"


class Network:
    """One instance's bridge, firewall and resolvers. Every method may be called again after it failed."""

    def __init__(self, settings: LibvirtSettings) -> None:
        self._settings = settings
        self.bridge = f"mvb{settings.instance}"
        self.table = f"mvm_{settings.instance}"
        self._tap_prefix = f"mvt{settings.instance}"
        self._firewall = Firewall(settings, bridge=self.bridge, table=self.table, tap_prefix=self._tap_prefix)
        # Against the keeper's turns, which look at all machines.
        self.lock = threading.RLock()

    def tap_for(self, ip: str) -> str:
        """The tap's name: the address's place in the subnet, so at most 14 characters."""
        return f"{self._tap_prefix}{self._firewall.slot(ip)}"

    def check_address(self, ip: str) -> None:
        """Raises BackendUnavailable for an address that no machine of this host can have."""
        subnet = self._settings.subnet
        taken = (subnet.network_address, subnet.broadcast_address, IPv4Address(self._settings.gateway))
        if IPv4Address(ip) not in subnet or IPv4Address(ip) in taken:
            raise BackendUnavailable(f"The address {ip} does not belong to this host's machines.")

    def install(self, ports: Iterable[NetworkPort]) -> None:
        """Bridge, forwarding, resolvers and both tables, holding exactly `ports`.

        The tables are made anew in one transaction, so there is no unguarded moment; what resolvers learned is kept.
        """
        with self.lock:
            self._make_bridge()
            if _IP_FORWARD.read_text().strip() != "1":
                _IP_FORWARD.write_text("1\n")
            resolved = [self._resolved_or_closed(port) for port in ports]
            learned = [line for port in resolved if port.dns_port for line in self._learned(port.ip)]
            elements = [line for port in resolved for line in self._attach_rules(port, None)]
            self._nft([*self._firewall.table_rules(), *elements, *learned])
            self.sync_resolvers(resolved)
        for tap in self.taps():
            run_tool(["bridge", "link", "set", "dev", tap, "isolated", "on"])

    def restore_missing_tables(self, ports: Sequence[NetworkPort]) -> None:
        """Install anew where a table is gone: a restart of the host's own firewall drops all tables, and what was left
        would neither keep the machines apart nor let them out. Nothing happens while both are there.
        """
        with self.lock:
            there = run_tool(["nft", "list", "tables"]).split("\n")
            if not {f"table {family} {self.table}" for family in ("inet", "bridge")} <= set(there):
                log.error("somebody removed the firewall's tables; they are made anew")
                self.install(ports)

    def attach(self, port: NetworkPort, former: NetworkPort | None = None) -> None:
        """Let a machine's frames through as its policy says; what `former` had is taken back."""
        with self.lock:
            resolved = self._resolved(port)
            moved = self._firewall.detach_rules(former.ip) if former and former.ip != port.ip else []
            self._nft([*moved, *self._attach_rules(resolved, former)])
            if not resolved.dns_port:
                self._resolver(port.machine_id).stop()

    def detach(self, ip: str, machine_id: str) -> None:
        """Take back everything an address and its machine were given."""
        with self.lock:
            self._nft(self._firewall.detach_rules(ip))
            self._resolver(machine_id).stop()

    def expire_learned_addresses(self, ip: str, turn: int) -> None:
        """One of the two sets of learned addresses begins anew; called with the next number every NAME_SECONDS."""
        self._nft([f"flush set inet {self.table} {self._firewall.learned_sets(ip)[turn % 2]}"])

    def sync_resolvers(self, ports: Iterable[NetworkPort]) -> None:
        """The common resolver runs, and each that these machines need; those of nobody end.

        One that cannot be started is told in the log, and tried again by the next call: its machines do without names.
        """
        wanted = {self._shared.conf}
        for port in ports:
            if port.policy.names:
                wanted.add(self._resolver(port.machine_id).conf)
                self._restart_resolver_if_down(port)
        stop_other_resolvers(self._settings.machines_dir, wanted)
        try:
            self._start_shared()
        except (BackendUnavailable, OSError) as error:
            log.error(
                "the guests' resolver does not start (does another one hold port 53 of all addresses?): %s", error
            )

    def _restart_resolver_if_down(self, port: NetworkPort) -> None:
        if self._resolver(port.machine_id).is_running():
            return
        log.warning("machine %s: its resolver is started again", port.machine_id)
        try:
            self.attach(port, port)
        except BackendUnavailable as error:
            log.error("machine %s: its resolver does not start: %s", port.machine_id, error)

    def taps(self) -> list[str]:
        """Names of this instance's taps that exist."""
        return sorted(path.name for path in _NET.glob(self._tap_prefix + "*"))

    def remove_tap(self, tap: str) -> None:
        """Remove a tap that outlived its process (they normally go with it)."""
        if (_NET / tap).exists() and tap.startswith(self._tap_prefix):
            run_tool(["ip", "link", "delete", tap], ok=(0, 1))

    def attached_addresses(self) -> dict[str, str]:
        """Machine id -> address, as the firewall holds it."""
        found = map(_guest, self._elements("bridge", "guests"))
        return {machine: ip for machine, ip in found if machine}

    def uninstall(self) -> None:
        """Remove resolvers, taps, bridge and both tables; harmless where they are not there."""
        stop_other_resolvers(self._settings.machines_dir, ())
        for tap in self.taps():
            self.remove_tap(tap)
        if (_NET / self.bridge).exists():
            run_tool(["ip", "link", "delete", self.bridge])
        for family in ("inet", "bridge"):
            # add before delete: deleting what is absent would be an error.
            self._nft([f"add table {family} {self.table}", f"delete table {family} {self.table}"])

    @property
    def _shared(self) -> Resolver:
        return Resolver(self._settings.machines_dir / _SHARED / "resolver")

    def _start_shared(self) -> None:
        shared = self._shared
        shared.conf.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shared.start_shared(self._settings.gateway, self._settings.dns)

    def _resolver(self, machine_id: str) -> Resolver:
        return Resolver(MachineDir(self._settings.machines_dir, machine_id).resolver)

    def _resolved(self, port: NetworkPort) -> NetworkPort:
        """The same with its resolver running, where its policy needs one."""
        if not port.policy.names:
            return replace(port, dns_port=0)
        sets = [f"inet#{self.table}#{name}" for name in self._firewall.learned_sets(port.ip)]
        resolver = self._resolver(port.machine_id)
        return replace(
            port,
            dns_port=resolver.start_for_names(self._settings.gateway, port.policy.names, sets, max_ttl=NAME_SECONDS),
        )

    def _resolved_or_closed(self, port: NetworkPort) -> NetworkPort:
        """One machine's resolver must not keep all others from their network."""
        try:
            return self._resolved(port)
        except BackendUnavailable as error:
            log.error("machine %s: its resolver does not start: %s", port.machine_id, error)
            return replace(port, dns_port=0)

    def _attach_rules(self, port: NetworkPort, former: NetworkPort | None) -> list[str]:
        self.check_address(port.ip)
        same = former is not None and (former.ip, former.generation) == (port.ip, port.generation)
        return self._firewall.attach_rules(port, keep_learned=same)

    def _learned(self, ip: str) -> list[str]:
        lines = []
        for name in self._firewall.learned_sets(ip):
            known = [_learned_address(element) for element in self._elements("inet", name)]
            lines += self._firewall.learned_address_rules(ip, name, known)
        return lines

    def _elements(self, family: str, name: str) -> list[Any]:
        """Elements of a set; none where there is no such set."""
        listed = run_tool(["nft", "-j", "list", "set", family, self.table, name], ok=(0, 1))
        rows = json.loads(listed)["nftables"] if listed else []
        return [element for row in rows if "set" in row for element in row["set"].get("elem", [])]

    def _make_bridge(self) -> None:
        gateway, prefix = self._settings.gateway, self._settings.subnet.prefixlen
        if not (_NET / self.bridge).exists():
            # A fixed MAC: else the bridge takes that of its lowest port, and guests' ARP entries break.
            mac = mac_for(gateway)
            run_tool(["ip", "link", "add", self.bridge, "address", mac, "type", "bridge", "stp_state", "0",
                 "forward_delay", "0", "mcast_snooping", "0"])  # fmt: skip
        no_ipv6 = Path(f"/proc/sys/net/ipv6/conf/{self.bridge}/disable_ipv6")
        if no_ipv6.exists():
            no_ipv6.write_text("1\n")
        run_tool(["ip", "address", "replace", f"{gateway}/{prefix}", "dev", self.bridge])
        run_tool(["ip", "link", "set", self.bridge, "up"])

    def _nft(self, lines: Sequence[str]) -> None:
        run_tool(["nft", "-f", "-"], stdin="\n".join(lines) + "\n")


def _guest(element: dict[str, Any]) -> tuple[str, str]:
    inner = element.get("elem", {})
    value = inner.get("val", {}) if inner else element
    return inner.get("comment", ""), value.get("concat", ["", "", ""])[2]


def _learned_address(element: Any) -> tuple[str, int]:
    inner = element["elem"] if isinstance(element, dict) else {"val": element}
    return str(inner["val"]), int(inner.get("expires", 1))
