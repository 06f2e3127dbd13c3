"""The client for URLs of users: what it sends, whom it connects to, and under which name."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest

from outbound import addresses
from outbound.connection import tls_context
from outbound.http import MAX_BODY, Answer, OutboundError, Targets, post, require_public_url
from tests.outbound.outside import OK, Authority, Outside, Receiver, answering, read_request

URL = "https://hooks.example.com/in?key=1"


def send(url: str, policy: Targets | None = None, body: bytes = b"{}", **headers: str) -> Answer:
    return post(url, body=body, headers=headers, deadline_seconds=10, policy=policy or Targets())


def local(receiver: Receiver, path: str = "/") -> tuple[str, Targets]:
    """A URL of a receiver with plain http, and a policy that lists it."""
    return f"http://127.0.0.1:{receiver.port}{path}", Targets.of([f"127.0.0.1:{receiver.port}"])


def failure(url: str, policy: Targets | None = None) -> OutboundError:
    with pytest.raises(OutboundError) as caught:
        send(url, policy)
    return caught.value


def test_the_request_and_the_answer() -> None:
    gone = b"HTTP/1.1 410 Gone\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 2\r\n\r\nno"
    requests: list[bytes] = []
    with Receiver(answering(gone, requests)) as there:
        answer = post(local(there, "/in?x=1")[0], body=b"\x00{}", headers={"webhook-id": "a b"}, policy=local(there)[1])
    assert answer == Answer(410, {"x-a": "1, 2", "content-length": "2"}, b"no", truncated=False)
    assert requests[0].split(b"\r\n") == [
        b"POST /in?x=1 HTTP/1.1",
        f"Host: 127.0.0.1:{there.port}".encode(),
        b"Content-Length: 3",
        b"Accept-Encoding: identity",
        b"Connection: close",
        b"webhook-id: a b",
        b"",
        b"\x00{}",
    ]


@pytest.mark.parametrize(
    "headers",
    [
        {"x": "a\r\nX-Injected: 1"},
        {"x": "a\nb"},
        {"x": "a\x00"},
        {"x": "ä"},
        {"x\r\ny": "a"},
        {"x:": "a"},
        {"": "a"},
        {"x y": "a"},
        {"Host": "a.test"},
        {"TRANSFER-ENCODING": "chunked"},
        {"Content-Length": "0"},
        {"Accept-Encoding": "gzip"},
    ],
)
def test_no_header_ends_a_line_or_changes_the_request(headers: dict[str, str]) -> None:
    with Receiver(answering(OK)) as there, pytest.raises(ValueError, match="not a header"):
        post(local(there)[0], body=b"", headers=headers, policy=local(there)[1])
    assert there.connections == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_answer_and_not_followed(status: int) -> None:
    with Receiver(answering(OK)) as target:
        head = f"HTTP/1.1 {status} Go\r\nLocation: http://127.0.0.1:{target.port}/\r\nContent-Length: 0\r\n\r\n"
        with Receiver(answering(head.encode())) as there:
            url, _ = local(there)
            answer = send(url, Targets.of([f"127.0.0.1:{there.port}", f"127.0.0.1:{target.port}"]))
    assert (answer.status, target.connections) == (status, 0)


def test_proxies_and_logins_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    requests: list[bytes] = []
    with Receiver(answering(OK)) as proxy, Receiver(answering(OK, requests)) as there:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        netrc = tmp_path / "netrc"
        netrc.write_text("machine 127.0.0.1 login a password b")
        monkeypatch.setenv("NETRC", str(netrc))
        send(*local(there))
    assert (proxy.connections, there.connections) == (0, 1)
    assert b"authorization" not in requests[0].lower()


def test_a_public_receiver_gets_the_request_under_its_own_name(outside: Outside, authority: Authority) -> None:
    requests: list[bytes] = []
    asked_for: list[str | None] = []
    tls = authority.server("hooks.example.com")
    tls.sni_callback = lambda _, name, __: asked_for.append(name)
    with Receiver(answering(OK, requests), tls=tls) as there:
        outside.names["hooks.example.com"] = [["8.8.8.8"]]
        outside.internet["8.8.8.8"] = there.port
        assert send(URL).body == b"ok"
    assert asked_for == ["hooks.example.com"]
    assert requests[0].startswith(b"POST /in?key=1 HTTP/1.1\r\nHost: hooks.example.com\r\n")


def test_an_address_is_connected_to_under_a_certificate_for_it(outside: Outside, authority: Authority) -> None:
    outside.names["hooks.example.com"] = [["8.8.8.8"]]
    with Receiver(answering(OK), tls=authority.server("8.8.8.8", "2606:4700:4700::1111")) as there:
        outside.internet |= {"8.8.8.8": there.port, "2606:4700:4700::1111": there.port, "1.1.1.1": there.port}
        assert send("https://8.8.8.8/").status == 200
        assert send("https://[2606:4700:4700::1111]/").status == 200
        assert failure("https://1.1.1.1/").kind == "tls"
        assert failure(URL).kind == "tls"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
@pytest.mark.parametrize("fault", ["other name", "expired", "unknown authority", "no TLS at all", "old TLS"])
def test_a_receiver_whose_certificate_is_not_its_own_gets_no_request(
    outside: Outside, authority: Authority, fault: str
) -> None:
    requests: list[bytes] = []
    tls: ssl.SSLContext | None = {
        "other name": lambda: authority.server("example.com", "*.other.example.com"),
        "expired": lambda: authority.server("hooks.example.com", days=-1),
        "unknown authority": lambda: Authority(authority.file.parent, "Another").server("hooks.example.com"),
        "no TLS at all": lambda: None,
        "old TLS": lambda: _old(authority.server("hooks.example.com")),
    }[fault]()
    behave = answering(OK, requests) if tls else lambda client: client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with Receiver(behave, tls=tls) as there:
        outside.names["hooks.example.com"] = [["8.8.8.8"]]
        outside.internet["8.8.8.8"] = there.port
        assert failure(URL).kind == "tls"
    assert requests == []


def _old(context: ssl.SSLContext) -> ssl.SSLContext:
    context.maximum_version = context.minimum_version = ssl.TLSVersion.TLSv1_1
    return context


def test_the_receiver_does_not_choose_the_cost_of_the_key_exchange() -> None:
    names = {cipher["name"] for cipher in tls_context().get_ciphers()}
    assert names
    assert not [name for name in names if name.startswith("DHE")]


def test_two_names_of_one_address_share_no_connection(outside: Outside, authority: Authority) -> None:
    """A request for one is never sent over a connection whose certificate was checked for the other."""
    requests: list[bytes] = []

    def serve_two(client: socket.socket) -> None:
        for _ in range(2):
            requests.append(read_request(client))
            client.sendall(OK)

    with Receiver(serve_two, tls=authority.server("a.example.com")) as there:
        outside.names |= {"a.example.com": [["8.8.8.8"]], "b.example.com": [["8.8.8.8"]]}
        outside.internet["8.8.8.8"] = there.port
        assert send("https://a.example.com/").status == 200
        assert failure("https://b.example.com/").kind == "tls"
        assert send("https://a.example.com/").status == 200
    assert (len(requests), there.connections) == (2, 3)


def test_a_name_is_looked_up_once_and_connected_where_it_was_checked(outside: Outside, authority: Authority) -> None:
    with Receiver(answering(OK), tls=authority.server("hooks.example.com")) as there:
        outside.names["hooks.example.com"] = [["8.8.8.8"], ["127.0.0.1"]]
        outside.internet["8.8.8.8"] = there.port
        assert send(URL).status == 200
        assert outside.server.questions == [("hooks.example.com", "A"), ("hooks.example.com", "AAAA")]
        assert failure(URL).kind == "refused_target"
    assert outside.dialled == ["8.8.8.8"]


def test_the_next_address_is_tried_where_one_refuses(outside: Outside, authority: Authority) -> None:
    with Receiver(answering(OK), tls=authority.server("hooks.example.com")) as there:
        outside.names["hooks.example.com"] = [["8.8.8.8", "2606:4700:4700::1111"]]
        outside.internet["2606:4700:4700::1111"] = there.port
        assert send(URL).status == 200
    assert outside.dialled == ["8.8.8.8", "2606:4700:4700::1111"]


def test_no_more_than_four_addresses_are_tried(outside: Outside) -> None:
    outside.names["hooks.example.com"] = [[f"8.8.8.{last}" for last in range(1, 20)]]
    assert failure(URL).kind == "connect"
    assert len(outside.dialled) == 4


def test_search_domains_and_the_hosts_file_are_not_for_names_of_users(outside: Outside) -> None:
    outside.names["ip6-localhost.example.com"] = [["8.8.8.8"]]
    assert failure("https://localhost.localdomain/").kind == "name"
    assert [name for name, _ in outside.server.questions] == ["localhost.localdomain"] * 2


def test_a_listed_name_is_found_in_the_hosts_file(outside: Outside) -> None:
    with Receiver(answering(OK)) as there:
        policy = Targets.of([f"localhost:{there.port}"])
        assert send(f"http://localhost:{there.port}/", policy).status == 200
    assert outside.server.questions == []


def test_addresses_of_this_host_are_refused(outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    outside.names["hooks.example.com"] = [["8.8.8.8"]]
    local_route = 2
    monkeypatch.setattr(addresses, "_route_type", lambda address: local_route if str(address) == "8.8.8.8" else 1)
    for url in (URL, "https://8.8.8.8/", "https://[64:ff9b::808:808]/"):
        assert failure(url).kind == "refused_target"
        with pytest.raises(OutboundError):
            require_public_url(url, Targets())
    assert outside.dialled == []


def test_a_network_of_the_settings_is_refused(outside: Outside) -> None:
    outside.names["hooks.example.com"] = [["8.8.4.4", "2606:4700:4700::1111"]]
    assert failure(URL, Targets.of([], ["8.8.4.0/24"])).kind == "refused_target"
    assert failure(URL, Targets.of([], ["2606:4700::/32"])).kind == "refused_target"
    assert failure("https://[64:ff9b::808:404]/", Targets.of([], ["8.8.4.0/24"])).kind == "refused_target"
    assert outside.dialled == []


def test_open_and_closed_ports_and_unknown_names_read_the_same(outside: Outside) -> None:
    outside.names["hooks.example.com"] = [["127.0.0.1"]]
    with Receiver(answering(OK)) as there:
        ports = (there.port, 2)
        urls = [f"https://{host}:{port}/" for port in ports for host in ("127.0.0.1", "hooks.example.com", "x.test")]
        assert len({failure(url).sentence for url in urls}) == 1
    assert there.connections == 0


def test_a_compressed_answer_stays_compressed() -> None:
    packed = b"\x1f\x8b" + bytes(1000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1002\r\n\r\n"
    with Receiver(answering(head + packed)) as there:
        assert send(*local(there)).body == packed


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("size", [MAX_BODY, MAX_BODY + 1, 20 * MAX_BODY])
def test_of_a_long_answer_64_kib_are_read(framing: str, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    raw = {
        "length": f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode() + body,
        "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (size, body),
        "close": b"HTTP/1.0 200 OK\r\n\r\n" + body,
    }[framing]
    with Receiver(answering(raw)) as there:
        answer = send(*local(there))
    assert (answer.status, answer.truncated) == (200, size > MAX_BODY)
    assert answer.body == body[:MAX_BODY]


def test_a_receiver_that_answers_before_it_has_read_all_is_heard() -> None:
    def refuse(client: socket.socket) -> None:
        client.recv(1000)
        client.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        while client.recv(65536):
            pass

    with Receiver(refuse) as there:
        assert send(*local(there), body=bytes(4 << 20)).status == 413


def test_threads_send_at_once() -> None:
    answers: list[Answer] = []
    with Receiver(answering(OK)) as there:
        threads = [threading.Thread(target=lambda: answers.append(send(*local(there)))) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [answer.body for answer in answers] == [b"ok"] * 20
    assert there.connections == 20
