"""`ws pages domain` and `ws port domain` beside a server that says what a test wants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from microvm.cli import domain_commands
from tests.clients.cli.runner import PROGRAM, TerminalProcess, Ws
from tests.clients.cli.test_commands import HOSTILE, answer
from tests.clients.scripted_server import Script, ScriptedRequest, Step

NAME = "shop.example.com"


@pytest.fixture
def ws(server: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ws:
    monkeypatch.setattr(domain_commands, "SECONDS_BETWEEN", 0.01)
    return Ws(tmp_path / "config", {"MICROVM_URL": server.url, "MICROVM_TOKEN": "t"})


def checked(*, verified: bool = False) -> dict[str, Any]:
    return {
        "domain": NAME,
        "verified": verified,
        "cname": {"expected": "edge.example", "actual": "other.example", "ok": verified},
        "ownership": {"host": f"_platform.{NAME}", "expected": "verify=pg_1", "found": None, "ok": verified},
        "errors": [] if verified else [f"There is no TXT record {HOSTILE}."],
    }


def domain(status: str, error: str | None = None) -> dict[str, Any]:
    ssl = {"status": status, "expiresAt": "2027-01-01T00:00:00Z" if status == "active" else None, "error": error}
    scheme = "https" if status == "active" else "http"
    return {
        "domain": NAME, "domain_ascii": NAME, "include_www": False, "verified": True, "ssl": ssl,
        "url": f"{scheme}://{NAME}",
    }  # fmt: skip


def found(status: str, error: str | None = None) -> Step:
    return answer(200, {"success": True, "domain": domain(status, error)})


def recorded(bodies: list[Any], body: Any) -> Step:
    """Keeps the body of the request."""

    def step(request: ScriptedRequest) -> None:
        bodies.append(json.loads(request.rfile.read(int(request.headers["Content-Length"]))))
        content = json.dumps(body).encode()
        request.answer(200, {"Content-Length": str(len(content))}, content)

    return step


NONE = answer(200, {"success": True, "domain": None})


def test_a_check_shows_each_record_and_fails_until_all_are_right(server: Script, ws: Ws) -> None:
    bodies: list[Any] = []
    server.steps = [answer(200, checked()), recorded(bodies, checked(verified=True))]
    missing = ws.run("pages", "domain", "check", "site", NAME)
    assert missing.exit_code == 5
    assert [line.split("\t") for line in missing.stdout.splitlines()] == [
        ["TYPE", "NAME", "WANTED", "FOUND", "RIGHT"],
        ["CNAME", NAME, "edge.example", "other.example", "no"],
        ["TXT", f"_platform.{NAME}", "verify=pg_1", "nothing", "no"],
    ]
    assert "A and AAAA" in missing.stderr
    assert "\x1b" not in missing.stderr
    right = ws.run("pages", "domain", "check", "--include-www", "site", NAME)
    assert (right.exit_code, "pages domain add" in right.stderr) == (0, True)
    assert server.seen[-1][1] == "/pages/site/domain/check"
    assert bodies == [{"domain": NAME, "include_www": True}]


def test_a_domain_without_its_records_is_refused_with_the_records_that_it_needs(server: Script, ws: Ws) -> None:
    refusal = {"code": "domain_not_verified", "message": "The DNS records are not right.", "details": checked()}
    server.steps = [answer(400, refusal)] * 2
    text = ws.fails(5, "pages", "domain", "add", "site", NAME)
    for shown in (
        f"_platform.{NAME}",
        "verify=pg_1",
        "edge.example",
        "Error: The DNS records are not right.",
        "Hint: ",
    ):
        assert shown in text
    assert not set(text) & {"\x1b", "\x07", "\r", "\u202e"}
    error = json.loads(ws.fails(5, "pages", "domain", "add", "site", NAME, "--json"))["error"]
    assert (error["code"], error["exit_code"]) == ("domain_not_verified", 5)
    assert error["details"]["ownership"]["expected"] == "verify=pg_1"


def test_a_wait_ends_with_the_certificate(server: Script, ws: Ws) -> None:
    server.steps = [answer(200, domain("pending")), found("pending"), found("pending"), found("active")]
    done = ws.run("pages", "domain", "add", "--wait", "site", NAME)
    assert (done.exit_code, done.stdout) == (0, f"https://{NAME}\n")
    assert done.stderr.splitlines() == [f"{NAME}: certificate pending", f"{NAME}: certificate active"]
    server.steps = [answer(200, domain("pending")), found("active")]
    assert ws.json("pages", "domain", "add", "--wait", "site", NAME)["ssl"]["status"] == "active"


@pytest.mark.parametrize(
    ("steps", "seconds", "code", "text"),
    [
        ([found("pending"), found("failed", "The CA said no.")], 300, 1, "The CA said no."),
        ([found("pending"), NONE], 300, 4, "No domain is connected"),
        ([found("pending")] * 50, 0.1, 8, "no certificate"),
    ],
)
def test_a_wait_without_a_certificate_says_why(
    server: Script, ws: Ws, steps: list[Step], seconds: float, code: int, text: str
) -> None:
    server.steps = [answer(200, domain("pending")), *steps]
    assert text in ws.fails(code, "pages", "domain", "add", "--wait", "--timeout", f"{seconds:g}", "site", NAME)


def test_a_platform_that_orders_no_certificates_is_not_waited_for(server: Script, ws: Ws) -> None:
    server.steps = [answer(200, domain("none")), found("none")]
    done = ws.run("pages", "domain", "add", "--wait", "site", NAME)
    assert (done.exit_code, done.stdout) == (0, f"http://{NAME}\n")
    assert "certificate: none" in done.stderr


def test_the_wait_shows_its_progress_on_a_terminal_and_ctrl_c_ends_it(server: Script, ws: Ws) -> None:
    server.steps = [answer(200, domain("pending")), *[found("pending")] * 100]
    command = [*PROGRAM, "pages", "domain", "add", "--wait", "site", NAME]
    with TerminalProcess(command, ws.environment) as terminal:
        terminal.read_until("certificate pending")
        terminal.interrupt()
        assert terminal.wait() == 130
        assert terminal.is_restored()


def test_a_domain_is_shown_listed_renewed_and_removed(server: Script, ws: Ws) -> None:
    pages = [{"slug": "site", "custom_domain": NAME}, {"slug": "bare", "custom_domain": None}]
    server.steps = [
        found("active"), answer(200, {"success": True, "pages": pages}), found("failed", HOSTILE),
        answer(200, domain("pending")), found("active"), answer(200, {"success": True}),
    ]  # fmt: skip
    assert "2027-01-01" in ws.output("pages", "domain", "show", "site")
    (_, row) = ws.output("pages", "domain", "list").splitlines()
    assert row.startswith(f"site\t{NAME}\t")
    assert "\x1b" not in row
    assert "is ordered" in ws.output("pages", "domain", "renew", "site")
    assert "disconnected" in ws.output("pages", "domain", "rm", "-y", "site")
    assert [each[:2] for each in server.seen[-3:]] == [
        ("POST", "/pages/site/domain/ssl/renew"), ("GET", "/pages/site/domain"), ("DELETE", "/pages/site/domain"),
    ]  # fmt: skip


def test_without_a_domain_the_way_to_one_is_said(server: Script, ws: Ws) -> None:
    server.steps = [NONE, NONE]
    assert "ws pages domain add" in ws.fails(4, "pages", "domain", "show", "site")
    assert "ws port domain check" in ws.fails(4, "port", "domain", "rm", "-y", "box")


def test_the_port_of_a_workspace_has_a_domain_by_the_same_words(server: Script, ws: Ws) -> None:
    bodies: list[Any] = []
    server.steps = [
        recorded(bodies, domain("active")), answer(200, checked(verified=True)), found("active"),
        answer(200, domain("pending")), found("active"), found("active"), answer(200, {"success": True}),
    ]  # fmt: skip
    assert ws.output("port", "domain", "add", "8080", NAME, "box") == f"https://{NAME}\n"
    assert bodies == [{"domain": NAME, "include_www": False, "port": 8080}]
    ws.output("port", "domain", "check", NAME, "box")
    ws.output("port", "domain", "show", "box")
    ws.output("port", "domain", "renew", "box")
    assert "--yes" in ws.fails(2, "port", "domain", "rm", "box")
    ws.output("port", "domain", "rm", "-y", "box")
    assert server.seen[-1][1] == "/workspace/box/domain"
