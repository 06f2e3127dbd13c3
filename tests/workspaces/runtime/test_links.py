"""Links to single files: what they open, for whom, and when they end."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.asgi import Request
from tests.callers import Caller
from tests.described import DescribedClient
from tests.fakehost import FakeHost
from tests.workspaces.runtime.conftest import Holder, switched_on
from tests.world import assert_error
from workspaces import last_used, power
from workspaces.runtime.links import signed
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
FILE = "/etc/a b\N{SNOWMAN}.txt"


def link(holder: Holder, method: str = "GET", path: str = FILE, **more: Any) -> str:
    """The path of a new link's address."""
    body = {"path": path, "method": method, "ttl_seconds": 60, **more}
    answer = holder.send("POST", "/files/links", data=json.dumps(body), content_type="application/json")
    assert answer.status_code == 200, answer.content
    return urlsplit(answer.json()["url"]).path


@pytest.fixture
def content(holder: Holder) -> bytes:
    place = holder.disk / FILE[1:]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(bytes(range(256)) * 100)
    return place.read_bytes()


def bytes_at(target: str, **headers: str) -> Request:
    request = Request(target, {name.replace("_", "-"): value for name, value in headers.items()})
    asyncio.run(request.run())
    return request


def sent(target: str, data: bytes) -> Request:
    request = Request(target, {}, "PUT", data)
    asyncio.run(request.run())
    return request


def test_a_link_reads_its_file_and_ranges_of_it(holder: Holder, content: bytes) -> None:
    target = link(holder)
    whole, part = bytes_at(target), bytes_at(target, Range="bytes=10-19")
    assert (whole.status, whole.body) == (200, content)
    assert (part.status, part.body) == (206, content[10:20])
    assert whole.headers["Content-Disposition"] == "attachment"
    assert whole.headers["X-Content-Type-Options"] == "nosniff"
    assert whole.headers["Content-Type"] == "application/octet-stream"
    assert bytes_at(target, Range="bytes=99999-").status == 416
    assert last_used.is_in_use(holder.id, 60)


def test_the_answer_says_when_it_ends(holder: Holder) -> None:
    body = {"path": FILE, "method": "GET", "ttl_seconds": 3600}
    answer = holder.send("POST", "/files/links", data=json.dumps(body), content_type="application/json").json()
    ends = datetime.fromisoformat(answer["expires_at"])
    assert timedelta(minutes=59) < ends - datetime.now(UTC) < timedelta(minutes=61)


def test_a_link_replaces_its_file_whole(holder: Holder, content: bytes) -> None:
    target = link(holder, "PUT")
    answer = sent(target, b"new")
    assert (answer.status, answer.json()) == (200, {"success": True, "size": 3})
    assert (holder.disk / FILE[1:]).read_bytes() == b"new"
    assert sent(target, b"").json() == {"success": True, "size": 0}


def test_a_file_that_is_too_large_changes_nothing(holder: Holder, content: bytes) -> None:
    target = link(holder, "PUT", max_bytes=10)
    answer = sent(target, b"x" * 11)
    assert (answer.status, answer.json()["code"]) == (413, "payload_too_large")
    assert (holder.disk / FILE[1:]).read_bytes() == content
    assert sent(target, b"x" * 10).status == 200


def test_a_link_opens_nothing_for_the_other_method(holder: Holder, content: bytes) -> None:
    assert sent(link(holder), b"new").status == 405
    assert bytes_at(link(holder, "PUT")).status == 405
    assert (holder.disk / FILE[1:]).read_bytes() == content


def test_a_link_is_no_token_and_a_token_no_link(holder: Holder, content: bytes) -> None:
    text = link(holder).rpartition("/")[2]
    assert_error(holder.get("/health", token=text), 401, "unauthorized")
    assert_error(DescribedClient().get(f"/r/files/linked/{holder.token}"), 401, "unauthorized")


@pytest.mark.parametrize("end", [0, 5, 40])
def test_a_link_with_another_byte_is_none(holder: Holder, content: bytes, end: int) -> None:
    target = link(holder)
    place = len(target) - 1 - end
    other = "A" if target[place] != "A" else "B"
    assert_error(DescribedClient().get(target[:place] + other + target[place + 1 :]), 401, "unauthorized")


def test_an_expired_link_is_refused(holder: Holder, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    target = link(holder)
    later = datetime.now(UTC) + timedelta(seconds=61)
    monkeypatch.setattr(signed.timezone, "now", lambda: later)
    assert_error(DescribedClient().get(target), 401, "unauthorized")


@pytest.mark.parametrize("ending", ["token", "disable"])
def test_a_link_ends_with_the_epoch(api: Caller, holder: Holder, content: bytes, ending: str) -> None:
    target = link(holder)
    assert api.post(f"/workspace/{holder.id}/runtime-api-access/{ending}").status_code == 200
    assert_error(DescribedClient().get(target), 403, "forbidden")


def test_a_link_is_its_own_workspaces_only(api: Caller, holder: Holder, content: bytes, vmhost: FakeHost) -> None:
    other = switched_on(api, api.post("/workspace", {"image": "localhost/tiny:1"}).json()["workspace"]["id"])
    named = link(holder).replace("/r/files", f"/r/{other.id}/files")
    assert_error(DescribedClient().get(named), 403, "forbidden")


def test_a_sleeping_machine_is_woken_by_a_link(holder: Holder, content: bytes, vmhost: FakeHost) -> None:
    target = link(holder)
    power.workspace_sleep(workspace=holder.workspace, actor="test")
    vmhost.settle()
    assert bytes_at(target).body == content
    assert holder.workspace.status == Status.RUNNING


def test_a_folder_and_a_file_that_is_not_there_are_refused(holder: Holder, content: bytes) -> None:
    assert_error(DescribedClient().get(link(holder, path="/etc")), 400, "path_invalid")
    assert_error(DescribedClient().get(link(holder, path="/none")), 404, "path_not_found")


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"path": "relative"}, "path"),
        ({"path": "/" + "x" * 5000}, "path"),
        ({"method": "POST"}, "method"),
        ({"ttl_seconds": 59}, "ttl_seconds"),
        ({"ttl_seconds": 86_401}, "ttl_seconds"),
        ({"max_bytes": 0}, "max_bytes"),
    ],
)
def test_wrong_fields_are_named(holder: Holder, wrong: dict[str, Any], field: str) -> None:
    body = {"path": FILE, "method": "GET", "ttl_seconds": 60, **wrong}
    answer = holder.send("POST", "/files/links", data=json.dumps(body), content_type="application/json")
    assert_error(answer, 400, "validation_error")
    assert field in answer.json()["details"]
