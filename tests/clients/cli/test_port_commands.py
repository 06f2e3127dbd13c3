"""`ws port link` and its like beside a server that says what a test wants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from microvm.cli.arguments import seconds
from microvm.cli.failures import CommandError
from tests.clients.cli.runner import Ws
from tests.clients.cli.test_commands import HOSTILE, answer
from tests.clients.scripted_server import Script, ScriptedRequest, Step

PATH = "/workspace/box/public-access/8080"
LINK = {
    "id": "lnk_1", "url": "http://x/?__link=plk_1", "label": "Alice", "created_at": "2026-11-01", "last_used_at": None,
    "expires_at": "2026-11-02",
}  # fmt: skip


@pytest.fixture
def ws(server: Script, tmp_path: Path) -> Ws:
    names = {"MICROVM_URL": server.url, "MICROVM_CLIENT_ID": "c", "MICROVM_CLIENT_SECRET": "the-secret"}
    return Ws(tmp_path / "config", names)


def sent(server: Script) -> tuple[str, str]:
    return server.seen[-1][:2]


def noting(bodies: list[Any], status: int, body: dict[str, Any]) -> Step:
    """Answers, and keeps what was sent."""

    def step(request: ScriptedRequest) -> None:
        bodies.append(json.loads(request.rfile.read(int(request.headers["Content-Length"]))))
        content = json.dumps({"success": True, **body}).encode()
        request.answer(status, {"Content-Length": str(len(content)), "Content-Type": "application/json"}, content)

    return step


@pytest.mark.parametrize(("given", "ttl"), [([], 86_400), (["--ttl", "2h"], 7200), (["--ttl", "60"], 60)])
def test_a_link_is_printed_with_its_address(server: Script, ws: Ws, given: list[str], ttl: int) -> None:
    bodies: list[Any] = []
    server.steps = [noting(bodies, 201, {"link": LINK})]
    assert ws.output("port", "link", "8080", "box", "--label", "Alice", *given) == f"{LINK['url']}\n"
    assert (sent(server), bodies) == (("POST", f"{PATH}/links"), [{"ttl_seconds": ttl, "label": "Alice"}])


def test_links_are_listed_and_revoked(server: Script, ws: Ws) -> None:
    links = [{**LINK, "url": None, "label": HOSTILE}]
    server.steps = [answer(200, {"success": True, "links": links}), answer(200, {"success": True, "message": "Gone."})]
    shown = ws.output("port", "links", "8080", "box")
    assert "lnk_1" in shown
    assert "\x1b" not in shown
    assert ws.output("port", "unlink", "8080", "lnk_1", "box") == "lnk_1 opens port 8080 no longer.\n"
    assert sent(server) == ("DELETE", f"{PATH}/links/lnk_1")


def test_access_is_changed(server: Script, ws: Ws) -> None:
    port = {"port": 8080, "url": "http://x", "label": "", "slug": "", "access": "private"}
    bodies: list[Any] = []
    server.steps = [noting(bodies, 200, {"port": port})]
    assert ws.output("port", "access", "8080", "private", "box") == "Port 8080 is private.\n"
    assert (sent(server), bodies) == (("PATCH", PATH), [{"access": "private"}])
    assert "'secret' is not one of" in ws.fails(2, "port", "access", "8080", "secret", "box")


@pytest.mark.parametrize("text", ["", "x", "-5m", "1.5h", "5w", "1h30m", "9" * 16])
def test_what_is_no_time_is_said(text: str) -> None:
    with pytest.raises(CommandError, match="is no time"):
        seconds(text)


@pytest.mark.parametrize(("text", "number"), [("90", 90), ("90s", 90), ("30m", 1800), ("2H", 7200), (" 7 d ", 604_800)])
def test_a_time_is_read(text: str, number: int) -> None:
    assert seconds(text) == number
