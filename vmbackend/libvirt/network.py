"""The machines' network: an own bridge, and nftables tables that let through what was admitted and nothing else.

Two tables, both named `mvm_<instance>`:

* `bridge`: a frame from a tap passes only if (tap, MAC, IPv4 address) is an element of `guests`, for ARP as for IPv4.
  Everything else a guest may utter (IPv6, foreign addresses, other protocols) is dropped.
* `inet`: guests in `internet` may go out to public addresses, masqueraded, and ask the configured resolvers; nobody
  comes in by routing; the host takes from guests only replies to its own connections and a few pings.

Guests do not see each other: their bridge ports are isolated (libvirt does that before a tap is up) and routing from
the bridge back to it is dropped. Per-machine state is set elements alone, changed in one transaction, and each `guests`
element carries the machine's id as its comment, so the firewall itself tells whose it is. Tables of other names are
never touched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_network
from pathlib import Path
from typing import Any

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.process import run
from vmbackend.libvirt.settings import PRIVATE_NETWORKS, LibvirtSettings

_NET = Path("/sys/class/net")
_IP_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")


@dataclass(frozen=True, slots=True)
class Port:
    """A machine's place in the network."""

    machine_id: str
    ip: str
    internet: bool


def mac_for(ip: str) -> str:
    """The locally administered MAC address that belongs to an IPv4 address."""
    return "02:6d:" + ":".join(f"{byte:02x}" for byte in IPv4Address(ip).packed)


class Network:
    """One instance's bridge and firewall. Every method may be called again after it failed."""

    def __init__(self, settings: LibvirtSettings) -> None:
        self._settings = settings
        self.bridge = f"mvb{settings.instance}"
        self.table = f"mvm_{settings.instance}"
        self._tap_prefix = f"mvt{settings.instance}"

    def tap_for(self, ip: str) -> str:
        """The tap's name: the address's place in the subnet, so at most 14 characters."""
        offset = int(IPv4Address(ip)) - int(self._settings.subnet.network_address)
        return f"{self._tap_prefix}{offset:x}"

    def check_address(self, ip: str) -> None:
        """Raises BackendUnavailable for an address that no machine of this host can have."""
        subnet = self._settings.subnet
        taken = (subnet.network_address, subnet.broadcast_address, IPv4Address(self._settings.gateway))
        if IPv4Address(ip) not in subnet or IPv4Address(ip) in taken:
            raise BackendUnavailable(f"The address {ip} does not belong to this host's machines.")

    def install(self, ports: Iterable[Port]) -> None:
        """Bridge, forwarding and both tables, holding exactly `ports`; one transaction, so no unguarded moment."""
        self._make_bridge()
        if _IP_FORWARD.read_text().strip() != "1":
            _IP_FORWARD.write_text("1\n")
        elements = [line for port in ports for line in self._add(port)]
        self._nft([*self._tables(), *elements])
        for tap in self.taps():
            run(["bridge", "link", "set", "dev", tap, "isolated", "on"])

    def admit(self, port: Port, former: Port | None = None) -> None:
        """Let a machine's frames through, with or without the way out; what `former` had is taken back."""
        lines = [*(self._remove(former.ip) if former else []), *self._remove(port.ip), *self._add(port)]
        self._nft(lines)

    def revoke(self, ip: str) -> None:
        """Take back everything an address was given."""
        self._nft(self._remove(ip))

    def taps(self) -> list[str]:
        """Names of this instance's taps that exist."""
        return sorted(path.name for path in _NET.glob(self._tap_prefix + "*"))

    def remove_tap(self, tap: str) -> None:
        """Remove a tap that outlived its process (they normally go with it)."""
        if (_NET / tap).exists() and tap.startswith(self._tap_prefix):
            run(["ip", "link", "delete", tap], ok=(0, 1))

    def admitted(self) -> dict[str, str]:
        """Machine id -> address, as the firewall holds it."""
        listed = json.loads(run(["nft", "-j", "list", "set", "bridge", self.table, "guests"]))
        return {machine: ip for machine, ip in map(_element, _elements(listed)) if machine}

    def uninstall(self) -> None:
        """Remove taps, bridge and both tables; harmless where they are not there."""
        for tap in self.taps():
            self.remove_tap(tap)
        if (_NET / self.bridge).exists():
            run(["ip", "link", "delete", self.bridge])
        for family in ("inet", "bridge"):
            # add before delete: deleting what is absent would be an error.
            self._nft([f"add table {family} {self.table}", f"delete table {family} {self.table}"])

    def _make_bridge(self) -> None:
        gateway, prefix = self._settings.gateway, self._settings.subnet.prefixlen
        if not (_NET / self.bridge).exists():
            # A fixed MAC: else the bridge takes that of its lowest port, and guests' ARP entries break.
            mac = mac_for(gateway)
            run(["ip", "link", "add", self.bridge, "address", mac, "type", "bridge", "stp_state", "0",
                 "forward_delay", "0", "mcast_snooping", "0"])  # fmt: skip
        no_ipv6 = Path(f"/proc/sys/net/ipv6/conf/{self.bridge}/disable_ipv6")
        if no_ipv6.exists():
            no_ipv6.write_text("1\n")
        run(["ip", "address", "replace", f"{gateway}/{prefix}", "dev", self.bridge])
        run(["ip", "link", "set", self.bridge, "up"])

    def _nft(self, lines: Sequence[str]) -> None:
        run(["nft", "-f", "-"], stdin="\n".join(lines) + "\n")

    def _key(self, ip: str) -> str:
        return f'"{self.tap_for(ip)}" . {mac_for(ip)} . {ip}'

    def _add(self, port: Port) -> list[str]:
        self.check_address(port.ip)
        key = self._key(port.ip)
        lines = [f'add element bridge {self.table} guests {{ {key} comment "{port.machine_id}" }}']
        if port.internet:
            lines.append(f"add element inet {self.table} internet {{ {port.ip} }}")
        return lines

    def _remove(self, ip: str) -> list[str]:
        # Deleting an absent element fails the transaction, adding a present one does not: so add, then delete.
        found = []
        for where, key in (("bridge {} guests", self._key(ip)), ("inet {} internet", ip)):
            place = where.format(self.table)
            found += [f"add element {place} {{ {key} }}", f"delete element {place} {{ {key} }}"]
        return found

    def _tables(self) -> list[str]:
        both = [f"{verb} table {family} {self.table}" for family in ("inet", "bridge") for verb in ("add", "delete")]
        return [*both, self._bridge_table(), self._inet_table()]

    def _bridge_table(self) -> str:
        return f"""
table bridge {self.table} {{
  set guests {{
    type ifname . ether_addr . ipv4_addr
  }}
  chain from_guests {{
    type filter hook prerouting priority -300; policy accept;
    iifname != "{self._tap_prefix}*" accept
    ether type ip iifname . ether saddr . ip saddr @guests accept
    ether type arp iifname . ether saddr . arp saddr ip @guests iifname . arp saddr ether . arp saddr ip @guests accept
    drop
  }}
}}"""

    def _inet_table(self) -> str:
        settings = self._settings
        private = [n for n in PRIVATE_NETWORKS if not _covered(n, settings.allowed_private)]
        resolvers = f"elements = {{ {', '.join(settings.dns)} }}" if settings.dns else ""
        allowed = f"ip daddr {{ {', '.join(settings.allowed_private)} }} accept" if settings.allowed_private else ""
        return f"""
table inet {self.table} {{
  set internet {{
    type ipv4_addr
  }}
  set resolvers {{
    type ipv4_addr
    {resolvers}
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname "{self.bridge}" jump out
    oifname "{self.bridge}" ip daddr @internet ct state established,related accept
    oifname "{self.bridge}" drop
  }}
  chain out {{
    meta nfproto != ipv4 drop
    oifname "{self.bridge}" drop
    ip saddr != @internet drop
    ip daddr @resolvers meta l4proto {{ tcp, udp }} th dport 53 accept
    {allowed}
    ip daddr {{ {", ".join(private)} }} drop
    accept
  }}
  chain input {{
    type filter hook input priority filter; policy accept;
    iifname != "{self.bridge}" accept
    ct state established,related accept
    icmp type echo-request limit rate 20/second accept
    ip saddr @internet ip daddr @resolvers meta l4proto {{ tcp, udp }} th dport 53 accept
    drop
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr @internet ip saddr {settings.subnet} oifname != "{self.bridge}" masquerade
  }}
}}"""


def _covered(network: str, allowed: Iterable[str]) -> bool:
    return any(ip_network(network).subnet_of(ip_network(a)) for a in allowed)  # type: ignore[arg-type]


def _elements(listed: dict[str, Any]) -> list[Any]:
    found = [entry["set"].get("elem", []) for entry in listed["nftables"] if "set" in entry]
    return [element for group in found for element in group]


def _element(element: dict[str, Any]) -> tuple[str, str]:
    inner = element.get("elem", {})
    value = inner.get("val", {}) if inner else element
    return inner.get("comment", ""), value.get("concat", ["", "", ""])[2]
