"""The first workspace of `make run` and `make up`: made once, and never again after its owner deleted it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Thread
from typing import Any

import httpx
import pytest

from supervise import commands, demo
from supervise.instance import Instance

CREDENTIALS = {"CLIENT_ID": "one", "CLIENT_SECRET": "s", "IMAGE": "localhost/tiny:1", "BASE_URL": "http://stub"}


class Service:
    """Answers as the API does, of the workspaces in `rows`; a new one gets the status `becomes`."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.becomes = "running"
        self.made = 0

    def answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            self.made += 1
            row = {"id": f"ws_{self.made}", "name": demo.NAME, "status": self.becomes}
            self.rows[row["id"]] = row
            return httpx.Response(202, json={"workspace": row})
        if request.url.path == "/workspace":
            return httpx.Response(200, json={"workspaces": list(self.rows.values())})
        return httpx.Response(200, json={"workspace": self.rows[request.url.path.rpartition("/")[2]]})


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service()

    @contextmanager
    def client(credentials: Mapping[str, str]) -> Any:
        with httpx.Client(base_url="http://stub", transport=httpx.MockTransport(made.answer)) as opened:
            yield opened

    monkeypatch.setattr(demo, "_client", client)
    return made


@pytest.fixture
def up(service: Service, tmp_path: Path) -> Callable[..., dict[str, Any] | None]:
    return lambda **changes: demo.first_workspace(CREDENTIALS | changes, tmp_path / "first-workspace")


def test_it_is_made_once_and_found_again(service: Service, up: Callable[[], Any]) -> None:
    assert up()["id"] == up()["id"] == "ws_1"
    assert service.made == 1


def test_one_that_its_owner_deleted_is_not_made_again(service: Service, up: Callable[[], Any]) -> None:
    up()
    service.rows.clear()
    assert up() is None
    assert service.made == 1


def test_one_that_never_came_up_is_made_again(service: Service, up: Callable[[], Any]) -> None:
    service.becomes = "failed"
    with pytest.raises(demo.DemoError):
        up()
    service.becomes = "running"
    assert up()["id"] == "ws_2"


def test_the_client_of_another_database_gets_one_of_its_own(service: Service, up: Callable[..., Any]) -> None:
    up()
    service.rows.clear()
    assert up(CLIENT_ID="two")["id"] == "ws_2"


def test_two_starts_at_once_make_one(
    service: Service, make_instance: Callable[[str], Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = make_instance("one")
    instance.credentials_file.write_text("".join(f"{key}={value}\n" for key, value in LOGINS.items()))
    # Both have looked before either makes it.
    looked, create = Barrier(2), demo._create

    def create_after_both(*arguments: Any) -> dict[str, Any]:
        with suppress(BrokenBarrierError):
            looked.wait(0.5)
        return create(*arguments)

    monkeypatch.setattr(demo, "_create", create_after_both)
    monkeypatch.setattr(commands, "run_command", lambda *_: None)
    monkeypatch.setattr(commands, "_wait_until_serving", lambda *_: None)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda hint: commands._demonstrate(instance, hint), ("one", "two"))) == [True, True]
    assert service.made == 1


LOGINS = {**CREDENTIALS, "CLIENT_SECRET": "sec_hidden", "ADMIN_USER": "admin", "ADMIN_PASSWORD": "pw_hidden"}


def test_what_a_journal_keeps_of_a_start_has_no_secret(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    demo.show_summary(LOGINS, {"id": "ws_1"}, tmp_path / "the credentials.env")
    shown = capsys.readouterr().out
    assert "hidden" not in shown
    assert f". '{tmp_path}/the credentials.env'" in shown
    assert "$CLIENT_SECRET" in shown
    assert "http://stub/admin/" in shown


def test_a_terminal_shows_the_logins(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    demo.show_summary(LOGINS, {"id": "ws_1"}, tmp_path / "credentials.env")
    shown = capsys.readouterr().out
    assert "sec_hidden" in shown
    assert "pw_hidden" in shown
    assert "/workspace/ws_1" in shown


def test_without_a_demo_a_start_waits_for_the_api_and_asks_it_for_nothing(
    make_instance: Callable[[str], Instance], capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    instance = make_instance("one")
    (instance.state / "settings.env").write_text("PLATFORM_DEMO=false\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_address[1]}"
        instance.credentials_file.write_text(f"BASE_URL={base}\nIMAGE=x\n")
        assert commands._demonstrate(instance, hint="It runs.")
        server.shutdown()
    assert asked == ["/healthz"]
    assert capsys.readouterr().out.rstrip().endswith(f"admin    {base}/admin/")
