"""The request of a machine that joins: whom it tells its token, and what is stored."""

from __future__ import annotations

import hashlib
import json
import ssl
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from hosts.joins import PROTOCOL
from supervise import join_request
from supervise.files import read_env_file
from supervise.join_request import JoinError, join
from supervise.network_certificates import make_certificates

HERE = "127.0.0.1"


@dataclass
class Control:
    """A control machine. `asked`: the bodies of joins; `status`, `body`: its answer."""

    authority: str
    port: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)
    status: int = 201
    body: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"https://{HERE}:{self.port}"

    @property
    def pin(self) -> str:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(self.authority)).hexdigest()

    def token(self, name: str = "a") -> str:
        return f"join_{name * 43}.{self.pin}"


def answer_of(port: int, authority: str) -> dict[str, Any]:
    place = f"{HERE}:{port}"
    return {
        "host": {"id": "host_22222222222222aa", "name": "two", "subnet": "10.130.0.0/20"},
        "instance": "abcdef",
        "settings": {"PLATFORM_BASE_URL": "https://vm.example.org"},
        "credentials": {
            "database": f"postgresql://host_22222222222222aa:pw@{place}/platform?sslrootcert=CA_PATH",
            "redis": f"rediss://host_22222222222222aa:pw@{place}/0?ssl_ca_certs=CA_PATH",
            "ca": authority,
            "host_key": "ssh-ed25519 AAAA control",
            "data_key": "k" * 40,
        },
        "peers": [],
    }


@contextmanager
def serving(certificates: Path, shown: str) -> Iterator[Control]:
    """A server with these certificates that shows the authority `shown`."""
    control = Control(shown)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, shown.encode())

        def do_POST(self) -> None:
            control.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._answer(control.status, json.dumps(control.body).encode())

        def _answer(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer((HERE, 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    control.port = server.server_port
    control.body = answer_of(control.port, shown)
    try:
        yield control
    finally:
        server.shutdown()
        server.server_close()


def certificates_in(folder: Path) -> Path:
    folder.mkdir()
    make_certificates(folder, HERE)
    return folder


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    folder = certificates_in(tmp_path / "network")
    with serving(folder, (folder / "ca.pem").read_text()) as made:
        yield made


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def join_here(control: Control, token: str, state: Path) -> str:
    return join(control.url, token, str(state), "192.0.2.7")


def test_a_machine_stores_what_it_is_given_for_its_user_alone(control: Control, state: Path) -> None:
    said = join_here(control, control.token(), state)
    assert "is the host two (host_22222222222222aa)" in said
    asked = control.asked[0]
    assert (asked["protocol"], asked["address"], len(asked["machine_id"])) == (PROTOCOL, "192.0.2.7", 16)
    values = read_env_file(state / "joined.env")
    assert values["PLATFORM_MACHINE_ROLES"] == "host"
    assert values["PLATFORM_HOST_ADDRESS"] == "192.0.2.7"
    assert values["PLATFORM_CONTROL_INSTANCE"] == "abcdef"
    assert values["PLATFORM_DATABASE_URL"].endswith(f"sslrootcert={state}/network/ca.pem")
    assert values["PLATFORM_DATA_KEY"] == "k" * 40
    assert (state / "network/ca.pem").read_text() == control.authority
    assert control.token() not in "".join(path.read_text() for path in state.rglob("*") if path.is_file())


def test_the_same_line_does_nothing_more_and_another_one_asks_again(control: Control, state: Path) -> None:
    assert [join_here(control, control.token(), state) for _ in range(2)][1] == "this machine has joined; going on"
    assert len(control.asked) == 1
    join_here(control, control.token("b"), state)
    assert len(control.asked) == 2
    assert control.asked[0]["machine_id"] == control.asked[1]["machine_id"]


def test_a_machine_in_between_learns_no_token(control: Control, state: Path, tmp_path: Path) -> None:
    """One with another authority, and one that shows the true authority and has no certificate of it."""
    other = certificates_in(tmp_path / "other")
    for shown in ((other / "ca.pem").read_text(), control.authority):
        with serving(other, shown) as false:
            with pytest.raises(JoinError, match=r"not the machine that made this token|does not answer"):
                join_here(false, control.token(), state)
            assert false.asked == []
    assert not (state / "joined.env").exists()


def test_a_refusal_is_its_sentence_and_the_line_can_be_repeated(control: Control, state: Path) -> None:
    control.status, control.body = 409, {"message": "Another host is called 'two'."}
    with pytest.raises(JoinError, match="Another host is called 'two'"):
        join_here(control, control.token(), state)
    assert sorted(path.name for path in state.rglob("*")) == ["host.id", "network", "transfer_key"]
    control.status, control.body = 201, answer_of(control.port, control.authority)
    join_here(control, control.token(), state)
    assert control.asked[0]["machine_id"] == control.asked[1]["machine_id"]
    assert control.asked[0]["ssh_host_key"] == control.asked[1]["ssh_host_key"]


def test_the_key_that_is_told_is_of_a_file_that_only_its_user_reads(control: Control, state: Path) -> None:
    join_here(control, control.token(), state)
    path = state / "network/transfer_key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    told = " ".join(asyncssh.read_private_key(path).export_public_key().decode().split()[:2])
    assert control.asked[0]["ssh_host_key"] == told
    assert sorted(path.name for path in path.parent.iterdir()) == ["ca.pem", "token", "transfer_key"]


def test_a_key_that_cannot_be_made_is_a_sentence(
    control: Control, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(join_request, "_routes", list)
    with pytest.raises(JoinError, match="transfer_key cannot be made"):
        join_here(control, control.token(), state)
    assert control.asked == []


def test_a_closed_port_is_said_before_anything_is_stored(control: Control, state: Path) -> None:
    control.body["credentials"]["database"] = f"postgresql://u:p@{HERE}:1/platform"
    with pytest.raises(JoinError, match=f"Port 1 of {HERE} is closed"):
        join_here(control, control.token(), state)
    assert not (state / "joined.env").exists()


@pytest.mark.parametrize("made", ["postgres", "credentials.env"])
def test_the_folder_of_an_instance_is_left_alone(control: Control, state: Path, made: str) -> None:
    (state / made).mkdir(parents=True)
    with pytest.raises(JoinError, match="is an instance of its own"):
        join_here(control, control.token(), state)
    assert control.asked == []


@pytest.mark.parametrize(("url", "token"), [("", ""), ("http://a:1", "x"), ("https://127.0.0.1:1", "join_x")])
def test_half_a_line_is_a_sentence(state: Path, url: str, token: str) -> None:
    assert join_request.main([url, token, str(state)]) == 1
