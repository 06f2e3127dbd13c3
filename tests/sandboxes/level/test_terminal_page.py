"""The terminal page as a response: the same for every address, and shut off from everything else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from sandboxes.level.terminal_page import files
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.sandboxes.conftest import Holder
from tests.sandboxes.rows import make_sandbox
from tests.world import assert_error
from workspaces.models import Operation
from workspaces.states import Status

UNKNOWN = "/s/sbx_2222222222222222/terminal"


@pytest.fixture(autouse=True)
def installed() -> None:
    assert (files.NPM / "xterm").is_dir(), "scripts/npm.sh has not brought the page's files"


def page(path: str = UNKNOWN, **headers: str) -> Any:
    answer = Client().get(path, headers=headers)
    assert answer.status_code == 200, answer.content
    return answer


def without_nonce(answer: Any) -> tuple[str, dict[str, str]]:
    """What may differ from response to response is left out."""
    nonce = re.search(r"'nonce-([\w-]+)'", answer["Content-Security-Policy"])
    assert nonce
    headers = {name: value.replace(nonce[1], "") for name, value in answer.items() if name != "X-Request-ID"}
    return answer.content.decode().replace(nonce[1], ""), headers


def test_the_policy_allows_nothing_but_its_own_files() -> None:
    answer, again = page(), page()
    policy: dict[str, str] = dict(
        part.strip().split(" ", 1) for part in answer["Content-Security-Policy"].split(";")
    )  # fmt: skip
    nonce = policy["script-src"]
    assert nonce.startswith("'nonce-")
    assert nonce not in again["Content-Security-Policy"]
    assert policy == {
        "default-src": "'none'", "script-src": nonce, "style-src": nonce, "style-src-attr": "'unsafe-inline'",
        "connect-src": "'self'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'",
        "frame-ancestors": "'none'",
    }  # fmt: skip
    assert {name: answer[name] for name in ("X-Frame-Options", "Referrer-Policy", "X-Content-Type-Options")} == {
        "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
    }  # fmt: skip
    assert (answer["Cache-Control"], answer["Content-Type"]) == ("no-store", "text/html; charset=utf-8")
    assert not answer.cookies
    assert not re.search(rb"https?:|<script(?![^>]* src=)|\son\w+=|style=", answer.content)


def test_the_files_of_the_page_are_there_and_never_change() -> None:
    text = page().content.decode()
    found = re.findall(r'(?:src|href)="(terminal/[^"]+)"', text)
    version = found[0].split("/")[1]
    imported = ["xterm.mjs", "addon-fit.mjs", "addon-unicode11.mjs", "connection.js", "tab.js"]
    for path in {*found, *(f"terminal/{version}/{name}" for name in imported)}:
        answer = Client().get(f"/s/sbx_2222222222222222/{path}")
        assert (answer.status_code, answer["Cache-Control"]) == (200, files_forever())
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["Content-Type"].split(";")[0] in ("text/javascript", "text/css")
    for path in (f"terminal/{version}/page.html", f"terminal/{version}/..%2ffiles.py", "terminal/0/page.js"):
        assert_error(Client().get(f"/s/sbx_2222222222222222/{path}"), 404, "not_found")


def files_forever() -> str:
    return "public, max-age=31536000, immutable"


@pytest.mark.django_db(transaction=True)
def test_no_answer_tells_whether_a_sandbox_exists_and_none_is_woken(
    holder: Holder, api: Caller, vmhost: FakeHost, django_assert_num_queries: Any
) -> None:
    sleeping, token = make_sandbox(api.account, status=Status.SLEEPING)
    before = Operation.objects.count()
    expected = without_nonce(page(UNKNOWN))
    bearers: list[dict[str, str]] = [{}, {"Authorization": f"Bearer {token}"}, {"Authorization": "Bearer sbt_no"}]
    with django_assert_num_queries(0):
        for id in (holder.id, sleeping.pk, sleeping.pk.upper(), "nonsense"):
            for headers in bearers:
                assert without_nonce(page(f"/s/{id}/terminal", **headers)) == expected
    assert Operation.objects.count() == before
    sleeping.workspace.refresh_from_db()
    assert sleeping.workspace.status == Status.SLEEPING


@pytest.mark.django_db(transaction=True)
def test_commands_have_the_same_path(holder: Holder) -> None:
    path, body = f"/s/{holder.id}/terminal", {"content_type": "application/json", "data": '{"command": "true"}'}
    assert Client().post(path, headers={"Authorization": f"Bearer {holder.token}"}, **body).status_code == 200
    assert_error(Client().post(path, **body), 401, "unauthorized")
    head = Client().head(path)
    assert (head.status_code, head.content) == (200, b"")
    for method in ("PUT", "DELETE", "PATCH"):
        answer = Client().generic(method, path, headers={"Authorization": f"Bearer {holder.token}"})
        assert_error(answer, 405, "method_not_allowed")


def test_without_its_files_the_page_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "NPM", tmp_path)
    files.page_files.cache_clear()
    assert_error(Client().get(UNKNOWN), 503, "page_not_installed")
