"""The machines' network on the host: a bridge, the firewall (`firewall.py`) and the resolvers (`resolver.py`).

Guests do not reach each other: their bridge ports are isolated (by libvirt, before a tap is up), and routing from the
bridge back to it is dropped. Neighbour and forwarding entries are fixed (`neighbours.py`). A machine's rules change in
one transaction. Each `guests` element has the machine's id as its comment, so the firewall itself shows the owner.
Tables of other names are never changed.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.firewall import NAME_SECONDS, Firewall, NetworkPort, mac_for
from vmbackend.libvirt.neighbours import Neighbours
from vmbackend.libvirt.peer_routes import PeerRoutes
from vmbackend.libvirt.process import run_tool
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.resolver import Resolver, stop_other_resolvers
from vmbackend.libvirt.settings import LibvirtSettings
from vmbackend.peers import Peer, first_refusal

log = logging.getLogger(__name__)

_NET = Path("/sys/class/net")
_IP_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
# Not a valid machine id.
_SHARED = ".network"


class Network:
    """One instance's bridge, firewall and resolvers. Every method may be retried after a failure."""

    def __init__(self, settings: LibvirtSettings) -> None:
        self._settings = settings
        self.bridge = f"mvb{settings.instance}"
        self.table = f"mvm_{settings.instance}"
        self._tap_prefix = f"mvt{settings.instance}"
        self._firewall = Firewall(settings, bridge=self.bridge, table=self.table, tap_prefix=self._tap_prefix)
        self._neighbours = Neighbours(self.bridge)
        self._routes = PeerRoutes(settings.instance, settings.address)
        self._peers: Collection[Peer] | None = None  # until a process applies some, those of the process before hold
        # Held by the maintenance thread, which reads all machines.
        self.lock = threading.RLock()

    def tap_for(self, ip: str) -> str:
        """Return the tap's name, of at most 14 characters."""
        return f"{self._tap_prefix}{self._firewall.slot(ip)}"

    def check_address(self, ip: str) -> None:
        """Raise BackendUnavailable for an address that is not available to machines of this host."""
        subnet = self._settings.subnet
        taken = (subnet.network_address, subnet.broadcast_address, IPv4Address(self._settings.gateway))
        if IPv4Address(ip) not in subnet or IPv4Address(ip) in taken:
            raise BackendUnavailable(f"The address {ip} does not belong to this host's machines.")

    def install(self, ports: Iterable[NetworkPort]) -> None:
        """Set up bridge, forwarding, resolvers and both tables, for exactly `ports`.

        The tables are replaced in one transaction, so rules apply at all times; learned addresses and peers are kept.
        """
        with self.lock:
            self._make_bridge()
            if _IP_FORWARD.read_text().strip() != "1":
                _IP_FORWARD.write_text("1\n")
            resolved = [self._resolved_or_without_names(port) for port in ports]
            learned = [line for port in resolved if port.dns_port for line in self._learned(port.ip)]
            elements = [line for port in resolved for line in self._attach_rules(port, None)]
            self._nft([*self._firewall.table_rules(), *self._known_peers(), *elements, *learned])
            self._replace_neighbours(resolved)
            self.sync_resolvers(resolved)
        self._configure_taps({self.tap_for(port.ip): port.ip for port in resolved})

    def restore_missing_tables(self, ports: Sequence[NetworkPort]) -> None:
        """Install again if a table is missing; no effect otherwise.

        A restart of the host's own firewall drops all tables, which removes isolation and internet access of machines.
        """
        with self.lock:
            existing = run_tool(["nft", "list", "tables"]).split("\n")
            if not {f"table {family} {self.table}" for family in ("inet", "bridge")} <= set(existing):
                log.error("the firewall's tables were removed by another program; installing them again")
                self.install(ports)

    def restore_neighbours(self, ports: Sequence[NetworkPort]) -> None:
        """Add the entries again if all are missing: the kernel removes them when the bridge is set down."""
        with self.lock:
            if not self._neighbours.addresses():
                self._replace_neighbours(ports)

    def apply_peers(self, peers: Collection[Peer]) -> None:
        """Do what `Driver.apply_peers` does. The firewall first: a route that is there is used."""
        if reason := first_refusal(peers, self._settings.subnet):
            raise BackendUnavailable(reason)
        with self.lock:
            self._nft(self._peer_rules(peers))
            self._peers = tuple(peers)
            self._routes.replace_all(peers)

    def restore_routes(self) -> None:
        """Add routes to peers again: the kernel removes them when their interface is set down."""
        with self.lock:
            if self._peers is not None:
                self._routes.replace_all(self._peers)

    def _known_peers(self) -> list[str]:
        """Return the rules of the peers that were applied last, by this process or the one before."""
        if self._peers is not None:
            return self._peer_rules(self._peers)
        if not self._settings.address:
            return self._peer_rules(())
        addresses, subnets = (map(_address, self._elements("inet", name)) for name in ("peers", "peer_guests"))
        return self._firewall.peer_rules(addresses, subnets)

    def _peer_rules(self, peers: Iterable[Peer]) -> list[str]:
        return self._firewall.peer_rules([str(p.address) for p in peers], [str(p.subnet) for p in peers])

    def _replace_neighbours(self, ports: Iterable[NetworkPort]) -> None:
        taps = set(self.taps())
        self._neighbours.replace_all([port.ip for port in ports if self.tap_for(port.ip) in taps])

    def connect(self, ip: str) -> None:
        """Make the entries of a machine whose process exists, before its CPUs run."""
        self._neighbours.configure_tap(self.tap_for(ip), ip)
        self.add_neighbour(ip)

    def add_neighbour(self, ip: str) -> None:
        with self.lock:
            self._neighbours.add(ip)

    def remove_neighbour(self, ip: str) -> None:
        """Remove the entry of a machine whose CPUs do not run: connections to it fail after some seconds, instead of
        much later.
        """
        with self.lock:
            self._neighbours.remove(ip)

    def _configure_taps(self, addresses: dict[str, str]) -> None:
        """Configure the existing taps; one without a machine is isolated."""
        for tap in self.taps():
            try:
                if tap in addresses:
                    self._neighbours.configure_tap(tap, addresses[tap])
                else:
                    self._neighbours.isolate_tap(tap)
            except BackendUnavailable:
                if (_NET / tap).exists():  # else it went with its process just now
                    raise

    def attach(self, port: NetworkPort, former: NetworkPort | None = None) -> None:
        """Apply a machine's policy; the rules of `former` are removed."""
        with self.lock:
            resolved = self._resolved(port)
            moved = self._firewall.detach_rules(former.ip) if former and former.ip != port.ip else []
            self._nft([*moved, *self._attach_rules(resolved, former)])
            if former and former.ip != port.ip:
                self._neighbours.remove(former.ip)
            if not resolved.dns_port:
                self._resolver(port.machine_id).stop()

    def detach(self, ip: str, machine_id: str) -> None:
        """Remove all rules of an address and stop its machine's resolver."""
        with self.lock:
            self._nft(self._firewall.detach_rules(ip))
            self._neighbours.remove(ip)
            self._resolver(machine_id).stop()

    def expire_learned_addresses(self, ip: str, turn: int) -> None:
        """Flush one of the two sets of learned addresses; called with the next number every NAME_SECONDS."""
        self._nft([f"flush set inet {self.table} {self._firewall.learned_sets(ip)[turn % 2]}"])

    def sync_resolvers(self, ports: Iterable[NetworkPort]) -> None:
        """Start the common resolver and those that these machines need; stop all others.

        A resolver that cannot be started is logged and retried by the next call; its machines cannot resolve names.
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
                "the guests' resolver does not start (does another DNS server listen on port 53 of all addresses?): %s",
                error,
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
        """Return names of this instance's existing taps."""
        return sorted(path.name for path in _NET.glob(self._tap_prefix + "*"))

    def remove_tap(self, tap: str) -> None:
        """Remove a tap that outlived its process (normally it is removed with the process)."""
        if not (_NET / tap).exists() or not tap.startswith(self._tap_prefix):
            return
        try:
            run_tool(["ip", "link", "delete", tap], ok=(0, 1))
        except BackendUnavailable:
            if (_NET / tap).exists():  # else it went with its process just now
                raise

    def attached_addresses(self) -> dict[str, str]:
        """Return the addresses in the firewall by machine id."""
        found = map(_guest, self._elements("bridge", "guests"))
        return {machine: ip for machine, ip in found if machine}

    def uninstall(self) -> None:
        """Remove resolvers, taps, bridge, routes and both tables. Idempotent."""
        self._routes.replace_all(())
        stop_other_resolvers(self._settings.machines_dir, ())
        for tap in self.taps():
            self.remove_tap(tap)
        if (_NET / self.bridge).exists():
            run_tool(["ip", "link", "delete", self.bridge])
        for family in ("inet", "bridge"):
            # add before delete: deleting an absent table is an error.
            self._nft([f"add table {family} {self.table}", f"delete table {family} {self.table}"])

    @property
    def _shared(self) -> Resolver:
        return Resolver(self._settings.machines_dir / _SHARED)

    def _start_shared(self) -> None:
        self._shared.start_shared(self._settings.gateway, self._settings.dns)

    def _resolver(self, machine_id: str) -> Resolver:
        return Resolver(MachineDir(self._settings.machines_dir, machine_id).resolver)

    def _resolved(self, port: NetworkPort) -> NetworkPort:
        """Return the port with its resolver running, if its policy needs one."""
        if not port.policy.names:
            return replace(port, dns_port=0)
        sets = [f"inet#{self.table}#{name}" for name in self._firewall.learned_sets(port.ip)]
        resolver = self._resolver(port.machine_id)
        return replace(
            port,
            dns_port=resolver.start_for_names(self._settings.gateway, port.policy.names, sets, max_ttl=NAME_SECONDS),
        )

    def _resolved_or_without_names(self, port: NetworkPort) -> NetworkPort:
        """Return what `_resolved` returns; a resolver that fails only affects its own machine."""
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
        """Return elements of a set; empty if it does not exist."""
        listed = run_tool(["nft", "-j", "list", "set", family, self.table, name], ok=(0, 1))
        rows = json.loads(listed)["nftables"] if listed else []
        return [element for row in rows if "set" in row for element in row["set"].get("elem", [])]

    def _make_bridge(self) -> None:
        gateway, prefix = self._settings.gateway, self._settings.subnet.prefixlen
        if not (_NET / self.bridge).exists():
            # A fixed MAC: otherwise the bridge takes that of a port, and guests' ARP entries become invalid.
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


def _address(element: Any) -> str:
    """Return an address or a network of a set as `nft` reads it."""
    return f"{element['prefix']['addr']}/{element['prefix']['len']}" if isinstance(element, dict) else str(element)


def _learned_address(element: Any) -> tuple[str, int]:
    inner = element["elem"] if isinstance(element, dict) else {"val": element}
    return str(inner["val"]), int(inner.get("expires", 1))
