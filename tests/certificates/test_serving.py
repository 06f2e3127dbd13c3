"""The edge: tokens on the HTTP port, certificates at the handshake, the secret between edge and api."""

from __future__ import annotations

import http.client
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
from cryptography import x509
from django.conf import settings

from certificates import orders, selectors, services, tokens
from certificates.edge_path import CertificatePath
from certificates.keys import new_key
from certificates.models import Certificate
from edge.certificate_sites import getter_secret
from edge.challenges import challenges_folder
from edge.domain_files import PORT, DomainFiles, link_kind
from tests.certificates.edge import CustomEdge, nothing
from tests.certificates.pebble import Pebble
from tests.certificates.rows import certificate_make, certificate_pem, self_signed
from tests.certificates.websocket import WebSocket, open_echo

TOKEN = "Abc_-" * 8
rows = pytest.mark.django_db(transaction=True)


def served_serial(connection: ssl.SSLSocket) -> int:
    found = connection.getpeercert(binary_form=True)
    assert found
    return x509.load_der_x509_certificate(found).serial_number


def serial_of(row: Certificate) -> int:
    return x509.load_pem_x509_certificates(row.chain.encode())[0].serial_number


def ask(connection: ssl.SSLSocket, host: str) -> bytes:
    connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return connection.recv(65536)


def test_a_token_is_served_for_any_host_and_nothing_else_below_its_path(custom_edge: CustomEdge) -> None:
    tokens.write_token(TOKEN, "content")
    folder = challenges_folder(settings.STATE)
    (folder / ".hidden-file-of-forty-characters-00000000").write_text("no")
    (folder / ("d" * 40)).mkdir()
    (folder.parent / ("outside" * 6)).write_text("no")
    path = "/.well-known/acme-challenge/"
    try:
        for host in ("a.example.org", "10.0.0.1", "anything"):
            assert custom_edge.get(host, path + TOKEN) == (200, b"content")
        others = [
            "",
            "x",
            "d" * 40,
            "d" * 40 + "/",
            f"{TOKEN}/",
            f"{TOKEN}.html",
            f"../{'outside' * 6}",
            TOKEN[:-1] + "B",
        ]
        others += [".hidden-file-of-forty-characters-00000000", f"%2e%2e/{'outside' * 6}", TOKEN + "%00", "*" * 20]
        for other in others:
            status, body = custom_edge.get("a.example.org", path + other)
            assert status in (400, 404), other
            assert b"content" not in body.replace(b'meta name="viewport" content', b""), other
    finally:
        tokens.remove_token(TOKEN)
        (folder / ".hidden-file-of-forty-characters-00000000").unlink()
        (folder / ("d" * 40)).rmdir()
        (folder.parent / ("outside" * 6)).unlink()


def test_no_other_name_becomes_a_file() -> None:
    for token in ("../x", "a/b", "", "x" * 129, "abc", "a" * 19 + "\n"):
        with pytest.raises(ValueError, match="not a token"):
            tokens.write_token(token, "")
        tokens.remove_token(token)


@rows
def test_a_certificate_of_the_ca_is_served_and_a_renewal_without_a_reload(
    ca: Pebble, carry_on: Callable[..., Certificate], custom_edge: CustomEdge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "_SHORTEST_POLL", 0.1)
    name = "tls.example.org"
    services.certificate_request([name])
    first = carry_on(name)
    with custom_edge.connect(name, ca.root()) as kept:
        assert served_serial(kept) == serial_of(first)
        assert b" 404 Not Found" in ask(kept, name)
        services.certificate_renew([name])
        second = carry_on(name, lambda row: row.chain != first.chain)
        with custom_edge.connect(name, ca.root()) as new:
            assert served_serial(new) == serial_of(second) != serial_of(first)
        assert b" 404 Not Found" in ask(kept, name)
    assert custom_edge.process.poll() is None


@rows
def test_a_renewal_cuts_no_open_websocket(custom_edge: CustomEdge) -> None:
    name = "ws.example.org"
    files = DomainFiles(settings.ENV.state)
    row = certificate_make(name)
    with open_echo() as upstream:
        custom_edge.lead_ports_to(upstream)
        files.link_set(name, link_kind(PORT))
        try:
            with custom_edge.connect(name) as kept:
                first = WebSocket(kept, name)
                assert first.ask("one") == "echo one"
                key = new_key()
                chain = certificate_pem(name, key, *self_signed(name)[2:])
                Certificate.objects.filter(pk=row.pk).update(chain=chain, key=key)
                with custom_edge.connect(name) as new:
                    assert served_serial(new) == serial_of(Certificate.objects.get()) != served_serial(kept)
                    assert WebSocket(new, name).ask("two") == "echo two"
                services.certificate_remove([name])
                with pytest.raises(ssl.SSLError):
                    custom_edge.connect(name)
                assert first.ask("three") == "echo three"
        finally:
            files.link_set(name, None)


@rows
def test_strange_names_in_a_handshake_reach_no_certificate(custom_edge: CustomEdge) -> None:
    known = "known.example.org"
    certificate_make(known)
    assert answer_to(custom_edge, known) == b"\x16", "a ServerHello"
    odd = ["%00", "\x00", " ", "/..", "#", "?x", "&server_name=" + known, "\r\nHost: x", "\xff", "%2e"]
    for name in [f"x&server_name={known}", f"*.{known}", f"../{known}", *(known + each for each in odd)]:
        # An alert, or nothing more.
        assert answer_to(custom_edge, name) in (b"\x15", b""), name
    assert custom_edge.process.poll() is None


def answer_to(edge: CustomEdge, name: str) -> bytes:
    """The type of the first record that the edge answers with."""
    with socket.create_connection(("127.0.0.1", edge.https_port), timeout=20) as connection:
        connection.sendall(client_hello(name.encode("latin-1")))
        return connection.recv(1)


def client_hello(name: bytes) -> bytes:
    """Of TLS 1.2, as no library sends such names: the bytes of the name where an ordinary one was."""
    context, incoming, outgoing = ssl.create_default_context(), ssl.MemoryBIO(), ssl.MemoryBIO()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    place = b"p" * (len(name) - 2) + b".p"
    tls = context.wrap_bio(incoming, outgoing, server_hostname=place.decode())
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    found = outgoing.read()
    assert found.count(place) == 1
    return found.replace(place, name)


@rows
def test_a_name_without_an_active_certificate_ends_in_the_handshake(custom_edge: CustomEdge) -> None:
    certificate_make("known.example.org")
    certificate_make("expired.example.org", status="expired")
    certificate_make("pending.example.org", chain="", key=None, not_before=None, expires_at=None, status="pending")
    custom_edge.connect("KNOWN.example.org").close()
    for name in ("unknown.example.org", "expired.example.org", "pending.example.org", "known", "127.0.0.1", None):
        with pytest.raises(ssl.SSLError):
            custom_edge.connect(name)
    services.certificate_remove(["known.example.org"])
    with pytest.raises(ssl.SSLError):
        custom_edge.connect("known.example.org")


@rows
def test_only_the_edge_gets_keys(custom_edge: CustomEdge) -> None:
    certificate_make("known.example.org")
    secret = getter_secret(settings.SECRET_KEY)
    right = "Basic " + b64encode(f"edge:{secret}".encode()).decode()
    wrong = [None, "Basic ", right[:-2], right + "=", "Basic " + b64encode(b"edge:").decode(), f"Bearer {secret}"]

    def asked(
        credential: str | None, path: str = "/certificate", method: str = "GET", **headers: str
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", custom_edge.keys_port, timeout=10)
        given = {"Authorization": credential} if credential is not None else {}
        connection.request(method, f"{path}?server_name=known.example.org", headers=given | headers)
        answer = connection.getresponse()
        return answer.status, answer.read()

    status, body = asked(right)
    assert status == 200
    assert b"PRIVATE KEY" in body
    for credential in wrong:
        assert asked(credential) == (404, b"")
    assert asked(right, "/internal/edge/certificate") == asked(right, "/refused") == (404, b"")
    assert asked(right, method="POST") == (404, b"")
    assert asked(right, Host="rebound.example.org")[1] == b""
    with pytest.raises(ssl.SSLError):
        custom_edge.connect("logged.example.org")
    log = custom_edge.log.read_text()
    assert secret not in log
    assert right.removeprefix("Basic ") not in log
    assert "PRIVATE KEY" not in log


def test_the_configuration_has_the_secret_and_no_command_line_has(custom_edge: CustomEdge) -> None:
    secret = getter_secret(settings.SECRET_KEY)
    assert secret in custom_edge.caddyfile
    assert not any(secret in str(word) for word in custom_edge.process.args)  # type: ignore[union-attr]


def test_a_database_that_is_away_ends_the_handshake_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    def away(name: str) -> str:
        raise OperationalError

    import certificates.edge_path as path

    monkeypatch.setattr(path, "served_certificate", away)
    said: list[str] = []
    given = "Basic " + b64encode(f"edge:{getter_secret(settings.SECRET_KEY)}".encode()).decode()
    environ: dict[str, Any] = {
        "PATH_INFO": "/internal/edge/certificate",
        "REQUEST_METHOD": "GET",
        "QUERY_STRING": "server_name=a.example.org",
        "HTTP_AUTHORIZATION": given,
    }
    assert CertificatePath(nothing)(environ, lambda status, _: said.append(status)) == [b""]  # type: ignore[arg-type]
    assert said == ["503 Service Unavailable"]
    assert selectors.served_certificate is not away
