"""The nftables rules: those common to all machines, and those of each machine's policy.

Two tables, both named `mvm_<instance>`:

* `bridge`: a frame from a tap passes only if (tap, MAC, IPv4 address) is an element of `guests`, for ARP as for IPv4.
  Everything else that a guest may send (IPv6, spoofed addresses, other protocols) is dropped. A frame to a tap passes
  only if it is addressed to that guest, an ARP question only if it asks for that guest's address: what the bridge
  floods (broadcasts, addresses that it has forgotten) shows guests nothing of each other.
* `inet`: guests in `outward` may reach public addresses, masqueraded, as far as their own chain allows; routed
  traffic comes in only from `peers`, the other hosts, for which a guest's `in_X` holds as for this host, while guests
  open nothing towards them; what is routed to `peer_guests` comes from this host's own processes only; the host
  accepts from guests only replies to its own connections, a few pings, and DNS queries to the resolver on the bridge's
  address. Frames that a tap receives itself, past its bridge, are dropped (`neighbours.py` says which frames that could
  be).

What guests share is bounded for each: connections and other flows that the host tracks (`flows`), TCP connections to a
resolver (`dns_tcp`), which has few places for them, and DNS queries in a second (`asking`): one that is not answered
occupies a place of the resolver for ten seconds.

A machine's policy is up to four chains and two sets, found by its address in the maps `out_of`, `dns_of`, `ask_of` and
`in_of`, so the cost per packet does not depend on the number of machines:

* `out_X`: the ports, networks and learned addresses that it reaches. Private networks are dropped before.
* `n0_X`, `n1_X`: the addresses that its resolver learned. Each answer is added to both, and they are flushed in turn:
  nftables does not refresh the timeout of an existing element, so a single set would expire an address that was
  answered a moment ago. A connection that began while its address was known is marked and continues.
* `dns_X`, `ask_X`: its DNS queries are redirected to its own resolver, and reach no other.
* `in_X`: the ports on which hosts and the edge reach it.

Deleting an absent object fails a transaction, adding a present one does not: so every removal is preceded by an add.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, collapse_addresses, ip_network

from vmbackend.guest.bootconfig import CONTROL_PORT
from vmbackend.libvirt.settings import LibvirtSettings
from vmbackend.policy import PRIVATE_NETWORKS, NetworkPolicy

# Maximum DNS time to live for guests; a learned address is allowed for one to two times as long.
NAME_SECONDS = 60
SSH_PORT = 22
# Limits per guest. Unanswered queries: at most QUERY_BURST + 10 * QUERIES_PER_SECOND at once (`resolver.py`).
QUERIES_PER_SECOND = 50
QUERY_BURST = 300
DNS_CONNECTIONS = 4
# A part of nf_conntrack_max, which is 65536 on a host with 4 GiB of memory and 262144 from 8 GiB on.
FLOWS = 4096
_KINDS = ("out", "dns", "ask", "in")


@dataclass(frozen=True, slots=True)
class NetworkPort:
    """A machine's network port and its policy. `dns_port`: of its own resolver, with a policy for some names only."""

    machine_id: str
    ip: str
    policy: NetworkPolicy
    generation: int = 1
    dns_port: int = 0


def mac_for(ip: str) -> str:
    """Return the locally administered MAC address that belongs to an IPv4 address."""
    return "02:6d:" + ":".join(f"{byte:02x}" for byte in IPv4Address(ip).packed)


class Firewall:
    """A renderer of lines for `nft -f`, from the settings only; it does not know what is installed."""

    def __init__(self, settings: LibvirtSettings, *, bridge: str, table: str, tap_prefix: str) -> None:
        self._settings = settings
        self._bridge = bridge
        self.table = table
        self._tap_prefix = tap_prefix

    def slot(self, ip: str) -> str:
        """Return the address's index in the subnet, in hexadecimal: part of the names of a machine's tap, chains and
        sets.
        """
        return f"{int(IPv4Address(ip)) - int(self._settings.subnet.network_address):x}"

    def learned_sets(self, ip: str) -> tuple[str, str]:
        """Return the names of the sets of addresses that the machine's resolver learned."""
        return f"n0_{self.slot(ip)}", f"n1_{self.slot(ip)}"

    def attach_rules(self, port: NetworkPort, *, keep_learned: bool) -> list[str]:
        """Add a machine with its policy, replacing a former one."""
        slot, table = self.slot(port.ip), f"inet {self.table}"
        chains = {
            f"out_{slot}": self._out(port) if port.policy.reaches_out else [],
            f"dns_{slot}": [f"meta l4proto {{ tcp, udp }} redirect to :{port.dns_port}"] if port.dns_port else [],
            f"ask_{slot}": [f"th dport {port.dns_port} accept"] if port.dns_port else [],
            f"in_{slot}": _in(port.policy),
        }
        lines = self._clear(port.ip)
        for name in self.learned_sets(port.ip):
            lines += self._learned_set(name) if port.dns_port else [f"delete set {table} {name}"]
            lines += [f"flush set {table} {name}"] if port.dns_port and not keep_learned else []
        for chain, rules in chains.items():
            lines += [f"add rule {table} {chain} {rule}" for rule in rules]
            kind = chain.partition("_")[0]
            found = f"add element {table} {kind}_of {{ {port.ip} : goto {chain} }}"
            lines.append(found if rules else f"delete chain {table} {chain}")
        return lines + [f"add element {where} {{ {key} }}" for where, key in self._memberships(port)]

    def detach_rules(self, ip: str) -> list[str]:
        """Remove everything of an address."""
        table = f"inet {self.table}"
        chains = [f"delete chain {table} {kind}_{self.slot(ip)}" for kind in _KINDS]
        return [*self._clear(ip), *chains, *(f"delete set {table} {name}" for name in self.learned_sets(ip))]

    def learned_address_rules(self, ip: str, name: str, addresses: Sequence[tuple[str, int]]) -> list[str]:
        """Add learned addresses with their remaining seconds."""
        elements = ", ".join(f"{address} timeout {seconds}s" for address, seconds in addresses if seconds > 0)
        return [f"add element inet {self.table} {name} {{ {elements} }}"] if elements else []

    def guest_element(self, ip: str) -> str:
        """Return the element of `guests`."""
        return f'"{self._tap_prefix}{self.slot(ip)}" . {mac_for(ip)} . {ip}'

    def _addressed_element(self, ip: str) -> str:
        return f'"{self._tap_prefix}{self.slot(ip)}" . {ip}'

    def _memberships(self, port: NetworkPort) -> list[tuple[str, str]]:
        table = f"inet {self.table}"
        found = [(f"bridge {self.table} guests", f'{self.guest_element(port.ip)} comment "{port.machine_id}"')]
        found.append((f"bridge {self.table} addressed", self._addressed_element(port.ip)))
        if port.policy.reaches_out:
            found.append((f"{table} outward", port.ip))
        if port.policy.allow_internet:
            found.append((f"{table} internet", port.ip))
        return found

    def _clear(self, ip: str) -> list[str]:
        """Remove the memberships; create chains and sets, flush the chains."""
        slot, table, lines = self.slot(ip), f"inet {self.table}", list[str]()
        keys = {
            f"bridge {self.table} guests": self.guest_element(ip),
            f"bridge {self.table} addressed": self._addressed_element(ip),
            f"{table} outward": ip,
            f"{table} internet": ip,
        }
        for kind in _KINDS:
            chain = f"{kind}_{slot}"
            lines += [f"add chain {table} {chain}", f"flush chain {table} {chain}"]
            lines.append(f"add element {table} {kind}_of {{ {ip} : goto {chain} }}")
            lines.append(f"delete element {table} {kind}_of {{ {ip} }}")
        for where, key in keys.items():
            lines += [f"add element {where} {{ {key} }}", f"delete element {where} {{ {key} }}"]
        return lines + [line for name in self.learned_sets(ip) for line in self._learned_set(name)]

    def _learned_set(self, name: str) -> list[str]:
        return [f"add set inet {self.table} {name} {{ type ipv4_addr; timeout {2 * NAME_SECONDS}s; }}"]

    def _out(self, port: NetworkPort) -> list[str]:
        policy, rules = port.policy, list[str]()
        if policy.egress_ports:
            rules.append(f"meta l4proto {{ tcp, udp }} th dport != {_ports(policy.egress_ports)} drop")
            rules.append("meta l4proto != { tcp, udp } drop")
        if policy.allow_internet:
            return [*rules, "accept"]
        mark = port.generation & 0xFFFFFFFF
        if port.dns_port:
            rules.append(f"ct state established ct mark {mark} accept")
            rules += [f"ip daddr @{name} ct mark set {mark} accept" for name in self.learned_sets(port.ip)]
        if policy.networks:
            rules.append(f"ip daddr {{ {', '.join(map(str, collapse_addresses(policy.networks)))} }} accept")
        return [*rules, "drop"]

    def peer_rules(self, addresses: Iterable[str], subnets: Iterable[str]) -> list[str]:
        """Replace the addresses of other hosts, and the subnets of their machines."""
        lines = list[str]()
        for name, elements in (("peers", sorted(set(addresses))), ("peer_guests", sorted(set(subnets)))):
            lines.append(f"flush set inet {self.table} {name}")
            lines += [f"add element inet {self.table} {name} {{ {', '.join(elements)} }}"] if elements else []
        return lines

    def table_rules(self) -> list[str]:
        """Replace both tables by ones without machines."""
        both = [f"{verb} table {family} {self.table}" for family in ("inet", "bridge") for verb in ("add", "delete")]
        return [*both, self._bridge_table(), self._inet_table()]

    def _bridge_table(self) -> str:
        return f"""
table bridge {self.table} {{
  set guests {{
    type ifname . ether_addr . ipv4_addr
  }}
  set addressed {{
    type ifname . ipv4_addr
  }}
  chain from_guests {{
    type filter hook prerouting priority -300; policy accept;
    iifname != "{self._tap_prefix}*" accept
    ether type ip iifname . ether saddr . ip saddr @guests accept
    ether type arp iifname . ether saddr . arp saddr ip @guests iifname . arp saddr ether . arp saddr ip @guests accept
    drop
  }}
  chain to_guests {{
    type filter hook postrouting priority 0; policy accept;
    oifname != "{self._tap_prefix}*" accept
    ether type ip oifname . ether daddr . ip daddr @guests accept
    ether type arp oifname . arp daddr ip @addressed accept
    drop
  }}
}}"""

    def _inet_table(self) -> str:
        return f"""
table inet {self.table} {{
  set internet {{ type ipv4_addr; }}
  set outward {{ type ipv4_addr; }}
  set peers {{ type ipv4_addr; }}
  set peer_guests {{ type ipv4_addr; flags interval; }}
  set asking {{ type ipv4_addr; size 65535; flags dynamic; timeout 10s; }}
  set flows {{ type ipv4_addr; size 65535; flags dynamic; }}
  set dns_tcp {{ type ipv4_addr; size 65535; flags dynamic; }}
  map out_of {{ type ipv4_addr : verdict; }}
  map dns_of {{ type ipv4_addr : verdict; }}
  map ask_of {{ type ipv4_addr : verdict; }}
  map in_of {{ type ipv4_addr : verdict; }}
  chain past_the_bridge {{
    type filter hook prerouting priority -450; policy accept;
    iifname "{self._tap_prefix}*" drop
  }}
  {self._forward_chains()}
  {self._host_chains()}
  {self._nat_chains()}
}}"""

    def _forward_chains(self) -> str:
        """Return the chains between machines and external networks.

        A packet of a peer's must have come from where its address is routed to. A host that is alone has no such rule,
        as not every kernel has `fib`.
        """
        misled = f'oifname "{self._bridge}" ip saddr @peers fib saddr . iif oif missing drop'
        drop_misled = misled if self._settings.address else ""
        private = [n for n in PRIVATE_NETWORKS if not _covered(n, self._settings.allowed_private)]
        allowed = ", ".join(self._settings.allowed_private)
        return f"""
  chain forward {{
    type filter hook forward priority filter; policy accept;
    ip daddr @peer_guests drop
    iifname "{self._bridge}" ip daddr @peers ct state established,related ct direction reply accept
    iifname "{self._bridge}" jump out
    {drop_misled}
    oifname "{self._bridge}" ip saddr @peers ip daddr vmap @in_of
    oifname "{self._bridge}" ip saddr @peers accept
    oifname "{self._bridge}" ip daddr @outward ct state established,related ct direction reply accept
    oifname "{self._bridge}" drop
  }}
  chain out {{
    meta nfproto != ipv4 drop
    oifname "{self._bridge}" drop
    ip daddr @peers drop
    ct state new add @flows {{ ip saddr ct count over {FLOWS} }} drop
    {f"ip daddr {{ {allowed} }} ip saddr vmap @out_of" if allowed else ""}
    ip daddr {{ {", ".join(private)} }} drop
    ip saddr vmap @out_of
    drop
  }}"""

    def _host_chains(self) -> str:
        """Return the chains between machines and this host.

        A machine's process needs no socket of this host: its frames come from its tap. One that a guest took over would
        otherwise reach what listens on this host, and other guests.

        A policy is evaluated for each packet in the original direction, so that established flows follow a new policy.
        """
        limit = f"limit rate over {QUERIES_PER_SECOND}/second burst {QUERY_BURST} packets"
        machines = self._settings.uids.machines
        return f"""
  chain input {{
    type filter hook input priority filter; policy accept;
    iifname != "{self._bridge}" accept
    ct state established,related ct direction reply accept
    icmp type echo-request limit rate 20/second accept
    ip daddr {self._settings.gateway} meta l4proto {{ tcp, udp }} jump questions
    meta l4proto udp th dport 53 reject
    tcp dport 53 reject with tcp reset
    drop
  }}
  chain questions {{
    ct state new add @flows {{ ip saddr ct count over {FLOWS} }} drop
    ct state new meta l4proto tcp add @dns_tcp {{ ip saddr ct count over {DNS_CONNECTIONS} }} reject with tcp reset
    meta l4proto udp update @asking {{ ip saddr {limit} }} drop
    ct state new meta l4proto tcp update @asking {{ ip saddr {limit} }} drop
    ip saddr @internet th dport 53 accept
    ip saddr vmap @ask_of
  }}
  chain output {{
    type filter hook output priority filter; policy accept;
    meta skuid {machines[0]}-{machines[-1]} drop
    oifname "{self._bridge}" ip daddr vmap @in_of
  }}"""

    def _nat_chains(self) -> str:
        settings, bridge = self._settings, self._bridge
        return f"""
  chain prerouting {{
    type nat hook prerouting priority dstnat; policy accept;
    iifname "{bridge}" ip daddr {settings.gateway} meta l4proto {{ tcp, udp }} th dport 53 ip saddr vmap @dns_of
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr @outward ip saddr {settings.subnet} oifname != "{bridge}" masquerade
  }}"""


def _in(policy: NetworkPolicy) -> list[str]:
    if not policy.ingress_ports:
        return []
    ports = _ports({*policy.ingress_ports, SSH_PORT, CONTROL_PORT})
    # Replies to the guest's own queries (DNS) are not ingress.
    return [
        "ct direction reply accept",
        f"tcp dport != {ports} reject with tcp reset",
        f"meta l4proto udp th dport != {ports} reject",
    ]


def _ports(ports: Iterable[int]) -> str:
    return f"{{ {', '.join(map(str, sorted(set(ports))))} }}"


def _covered(network: str, allowed: Iterable[str]) -> bool:
    return any(ip_network(network).subnet_of(ip_network(a)) for a in allowed)  # type: ignore[arg-type]
