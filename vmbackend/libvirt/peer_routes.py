"""Routes to the machines of other hosts.

Each is a plain route to a host's subnet via its address. Our routes have a protocol of their own, and a metric of their
own for each instance, so the kernel keeps them apart from any other route to the same network: a route of the
administrator's, whose metric is lower, is used before ours and is never replaced or removed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.process import run_tool
from vmbackend.peers import Peer

log = logging.getLogger(__name__)

# None that rt_protos(5) lists.
_PROTOCOL = "109"
_FIRST_METRIC = 1 << 24
_MAIN = ("table", "main")


class PeerRoutes:
    """The routes of one instance. `source`: the address of this host from which it speaks; empty: the kernel chooses.
    Every method may be repeated.
    """

    def __init__(self, instance: str, source: str = "") -> None:
        self._own = ("proto", _PROTOCOL, "metric", str(_FIRST_METRIC + int(instance, 16)))
        self._source = source

    def replace_all(self, peers: Iterable[Peer]) -> None:
        """Let exactly these peers have routes. Raise BackendUnavailable.

        A route that the kernel refuses (its address is on no network of this host) is logged; the others are made.
        """
        wanted = {str(peer.subnet): (str(peer.address), self._source) for peer in peers}
        existing = self._existing()
        for subnet in existing.keys() - wanted.keys():
            run_tool(["ip", "route", "del", subnet, *self._own, *_MAIN])
        for subnet, (address, source) in wanted.items():
            if existing.get(subnet) != (address, source):
                self._replace(subnet, address)

    def _existing(self) -> dict[str, tuple[str, str]]:
        """Return address and source by subnet."""
        listed = run_tool(["ip", "-4", "-N", "-j", "route", "show", "proto", _PROTOCOL, *_MAIN])
        return {
            str(route["dst"]): (str(route.get("gateway", "")), str(route.get("prefsrc", "")))
            for route in json.loads(listed or "[]")
            if str(route.get("metric", 0)) == self._own[-1]
        }

    def _replace(self, subnet: str, address: str) -> None:
        source = ("src", self._source) if self._source else ()
        try:
            run_tool(["ip", "route", "replace", subnet, "via", address, *source, *self._own, *_MAIN])
        except BackendUnavailable:
            log.error("the machines of the host %s are out of reach: it has no route (is it on this network?)", address)
