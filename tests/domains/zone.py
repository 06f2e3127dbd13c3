"""A name server in this process, with the records that a test gives it, or the answers of a hostile one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dnslib import AAAA, CNAME, QTYPE, RCODE, RR, TXT, A, DNSRecord
from dnslib.server import BaseResolver, DNSLogger, DNSServer

from tests.free_ports import free_port

EDGE = "edge.platform.example"
EDGE_ADDRESS = "192.0.2.7"
MAKE: dict[str, Callable[[str], Any]] = {"A": A, "AAAA": AAAA, "CNAME": CNAME, "TXT": TXT}


@dataclass
class Zone(BaseResolver):
    """`records`: by name and type. A name without any is NXDOMAIN. `answer`: instead of all that."""

    records: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    questions: list[tuple[str, str]] = field(default_factory=list)
    answer: Callable[[DNSRecord], DNSRecord] | None = None
    seconds: float = 0.0

    def resolve(self, request: DNSRecord, handler: Any) -> DNSRecord:
        name, kind = str(request.q.qname).rstrip(".").lower(), QTYPE[request.q.qtype]
        self.questions.append((name, kind))
        time.sleep(self.seconds)
        if self.answer is not None:
            return self.answer(request)
        reply = request.reply()
        for kept in [(name, kind), (name, "CNAME")]:
            for value in self.records.get(kept, []):
                reply.add_answer(RR(request.q.qname, getattr(QTYPE, kept[1]), rdata=MAKE[kept[1]](value), ttl=0))
            if reply.rr:
                break
        if not any(known == name for known, _ in self.records):
            reply.header.rcode = RCODE.NXDOMAIN
        return reply

    def forget(self) -> None:
        """As at the beginning, for the next test."""
        self.records.clear()
        self.questions.clear()
        self.answer, self.seconds = None, 0.0

    def set(self, name: str, **values: str | list[str]) -> None:
        """`set("a.example.com", CNAME="edge", TXT=["one", "two"])`; an empty list removes."""
        for kind, value in values.items():
            self.records[name, kind] = [value] if isinstance(value, str) else value

    def point(self, name: str) -> None:
        self.set(name, CNAME=f"{EDGE}.")

    def prove(self, name: str, *targets: str) -> None:
        self.set(f"_platform.{name}", TXT=[f"verify={target}" for target in targets])


@contextmanager
def open_zone(zone: Zone) -> Iterator[str]:
    """Serves it over UDP and TCP; yields its place as PLATFORM_DNS_RESOLVERS has it."""
    logger = DNSLogger(log="-request,-reply,-truncated,-error", logf=lambda line: None)
    port = free_port()
    udp = DNSServer(zone, address="127.0.0.1", port=port, logger=logger)
    tcp = DNSServer(zone, address="127.0.0.1", port=port, tcp=True, logger=logger)
    for server in (udp, tcp):
        server.start_thread()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        for server in (udp, tcp):
            server.stop()
            server.server.server_close()
