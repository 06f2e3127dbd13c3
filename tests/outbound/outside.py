"""The world outside of this host, in this process: name servers, the internet's addresses, receivers, a CA."""

from __future__ import annotations

import errno
import json
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.resolver
import dns.rrset
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from outbound import connection, names
from outbound.addresses import is_public
from outbound.connection import tls_context

Behaviour = Callable[[socket.socket], None]
CORPUS: dict[str, dict[str, list[Any]]] = json.loads(
    (Path(__file__).parents[1] / "webhooks/ssrf_corpus.json").read_text()
)


class Receiver:
    """A server on loopback (all of IPv4 and IPv6) that counts connections and does what `behave` does with each."""

    def __init__(self, behave: Behaviour, *, tls: ssl.SSLContext | None = None) -> None:
        self._behave, self._tls = behave, tls
        self._listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # No accept returns once it is shut down, so the count is final.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            client.settimeout(30)
            if self._tls is None:
                self._behave(client)
            else:
                with self._tls.wrap_socket(client, server_side=True) as encrypted:
                    self._behave(encrypted)


def read_request(client: socket.socket) -> bytes:
    """A whole request, as bytes."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(client)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        body += _some(client)
    return head + b"\r\n\r\n" + body


def _some(client: socket.socket) -> bytes:
    data = client.recv(65536)
    if not data:
        raise ConnectionError("the client closed the connection")
    return data


def answering(raw: bytes, requests: list[bytes] | None = None) -> Behaviour:
    """Reads the request and sends these bytes."""

    def behave(client: socket.socket) -> None:
        request = read_request(client)
        if requests is not None:
            requests.append(request)
        client.sendall(raw)

    return behave


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class NameServer:
    """Answers questions over UDP. The n-th question of a name and type gets its n-th set of addresses, later ones the
    last; an empty list of sets gets no answer at all."""

    def __init__(self, answers: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self.answers = answers
        self.questions: list[tuple[str, str]] = []
        self._asked: Counter[tuple[str, str]] = Counter()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join()
        self._socket.close()

    def forget_questions(self) -> None:
        self.questions.clear()
        self._asked.clear()

    def resolver(self) -> dns.resolver.Resolver:
        made = dns.resolver.Resolver(configure=False)
        made.port, made.nameservers = self.port, ["127.0.0.1"]
        return made

    def _serve(self) -> None:
        while True:
            wire, peer = self._socket.recvfrom(4096)
            if not wire:
                return
            if (reply := self._reply(dns.message.from_wire(wire))) is not None:
                self._socket.sendto(reply.to_wire(), peer)

    def _reply(self, query: dns.message.Message) -> dns.message.Message | None:
        question = query.question[0]
        name, kind = question.name.to_text(omit_final_dot=True), dns.rdatatype.to_text(question.rdtype)
        self.questions.append((name, kind))
        reply = dns.message.make_response(query)
        reply.flags |= dns.flags.RA
        if name not in self.answers:
            reply.set_rcode(dns.rcode.NXDOMAIN)
            return reply
        if not self.answers[name]:
            return None
        sets = self.answers[name]
        chosen = sets[min(self._asked[name, kind], len(sets) - 1)]
        self._asked[name, kind] += 1
        if found := [address for address in chosen if (":" in address) == (kind == "AAAA")]:
            reply.answer.append(dns.rrset.from_text(question.name, 0, "IN", kind, *found))
        return reply


class Outside:
    """`names`: what the name server answers. `internet`: public address -> the port of loopback that stands for it.
    `dialled`: each address that the client connected to. Addresses that are not public are really connected to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.names: dict[str, Sequence[Sequence[str]]] = {}
        self.internet: dict[str, int] = {}
        self.dialled: list[str] = []
        self.server = NameServer(self.names)
        self._open = connection.open_socket
        patch.setattr(names, "host_resolver", self.server.resolver)
        patch.setattr(connection, "open_socket", self._dial)

    def _dial(self, address: str, port: int, seconds: float) -> socket.socket:
        self.dialled.append(address)
        if address in self.internet:
            return self._open("127.0.0.1", self.internet[address], seconds)
        if is_public(address):
            raise OSError(errno.ENETUNREACH, "no internet in tests")
        return self._open(address, port, seconds)


@contextmanager
def outside_world() -> Iterator[Outside]:
    with pytest.MonkeyPatch.context() as patch:
        world = Outside(patch)
        try:
            yield world
        finally:
            world.server.close()


class Authority:
    """A certificate authority, which the client trusts within `trusted`."""

    def __init__(self, folder: Path, name: str = "An authority of the tests") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = self._build(self._name, self._key.public_key(), days=30).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.file = folder / f"{name.replace(' ', '-')}.pem"
        self.file.write_bytes(self._signed(self._certificate))

    @contextmanager
    def trusted(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", str(self.file))
            tls_context.cache_clear()
            yield
        tls_context.cache_clear()

    def server(self, *hosts: str, days: int = 30) -> ssl.SSLContext:
        """A server's TLS for these names and addresses. With negative `days` its certificate has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
        built = self._build(subject, key.public_key(), days=days).add_extension(
            x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = self._folder / f"{hosts[0].replace(':', '-')}{days}.pem"
        file.write_bytes(self._signed(built) + private)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _build(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder(self._name, subject, key, x509.random_serial_number())
            .not_valid_before(now - timedelta(days=60))
            .not_valid_after(now + timedelta(days=days))
        )

    def _signed(self, builder: x509.CertificateBuilder) -> bytes:
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
