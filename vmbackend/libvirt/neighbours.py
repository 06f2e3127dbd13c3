"""Fixed entries for machines: neighbours of the host, and forwarding entries of the bridge.

A machine's MAC address follows from its IP address, so the host never has to resolve it while its CPUs run. A
resolution that began while the machine slept, or that a guest on a busy host answers late, fails the first connections
after a wake (EHOSTUNREACH). A machine that is paused, asleep or off has none: failed resolutions keep the host's TCP
from doubling the times between its retransmissions, so that a connection that outlives a sleep goes on soon after it.

The bridge knows which tap a MAC address belongs to without having seen a frame of it. Otherwise it would flood frames
to all guests: after a wake until the guest's first frame, and after five minutes of silence. It learns nothing from
frames, as a learned address would replace a fixed one.

Frames to the reserved addresses 01:80:c2:00:00:0X (STP, LLDP, LACP) are not bridged: by default the kernel hands them
to the tap's own protocols, past the firewall's rules for the bridge, also those that contain IPv4, ARP or an IPv6
router's announcement. So taps forward these addresses as any others, which the firewall sees, and have no IPv6.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.firewall import mac_for
from vmbackend.libvirt.process import run_tool

_NO_DEVICE, _NO_ENTRY = 1, 2  # exit codes of `ip`
_NET, _IPV6 = Path("/sys/class/net"), Path("/proc/sys/net/ipv6/conf")
# A bit for each reserved address. The kernel does not permit the bit of pause frames, which it drops.
_ALL_RESERVED = "0xfffd"


class Neighbours:
    """The neighbour entries of one instance's bridge. Every method may be repeated. Raises BackendUnavailable."""

    def __init__(self, bridge: str) -> None:
        self._bridge = bridge

    def add(self, ip: str) -> None:
        run_tool(["ip", *self._entry(ip).split()])

    def remove(self, ip: str) -> None:
        run_tool(["ip", "neigh", "del", ip, "dev", self._bridge], ok=(0, _NO_DEVICE, _NO_ENTRY))

    def addresses(self) -> set[str]:
        """Return the addresses that have an entry."""
        listed = run_tool(["ip", "-j", "neigh", "show", "dev", self._bridge, "nud", "permanent"])
        return {str(entry["dst"]) for entry in json.loads(listed or "[]")}

    def replace_all(self, addresses: Collection[str]) -> None:
        """Replace all entries by exactly these addresses; their entries are never missing in between."""
        lines = [f"neigh del {ip} dev {self._bridge}" for ip in self.addresses() - set(addresses)]
        lines += [self._entry(ip) for ip in addresses]
        if lines:
            run_tool(["ip", "-force", "-batch", "-"], stdin="\n".join(lines) + "\n")

    def configure_tap(self, tap: str, ip: str) -> None:
        """Let frames for the address, and no other unicast, leave by this tap; frames from it reach the host only."""
        self._configure(tap, f"fdb replace {mac_for(ip)} dev {tap} master static")

    def isolate_tap(self, tap: str) -> None:
        """Isolate a tap without an address."""
        self._configure(tap)

    def _configure(self, tap: str, *lines: str) -> None:
        isolated = f"link set dev {tap} isolated on flood off learning off"
        run_tool(["bridge", "-batch", "-"], stdin="\n".join([isolated, *lines]) + "\n")
        try:
            (_NET / tap / "brport" / "group_fwd_mask").write_text(_ALL_RESERVED)
            with suppress(FileNotFoundError):  # a host without IPv6
                (_IPV6 / tap / "disable_ipv6").write_text("1")
        except OSError as error:
            raise BackendUnavailable("The host could not configure the machine's network device.") from error

    def _entry(self, ip: str) -> str:
        return f"neigh replace {ip} lladdr {mac_for(ip)} dev {self._bridge} nud permanent"
