"""SSH access by keys (wire contract, section 3: added routes)."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from django.db import connections

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_workspace
from tests.workspaces.workspace_states import make
from vmbackend.backend import machines_dir
from vmbackend.fake.guest import SSH_FILE
from vmbackend.fake.store import FakeStore
from workspaces.models import Activity, Workspace
from workspaces.ssh import MAX_KEYS
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
PRIVATE = asyncssh.generate_private_key("ssh-ed25519")


def new_key(comment: str = "me@box", kind: str = "ssh-ed25519", **options: Any) -> str:
    line: bytes = asyncssh.generate_private_key(kind, **options).export_public_key()
    return f"{line.decode().strip()} {comment}"


def fingerprint(line: str) -> str:
    return asyncssh.import_public_key(line).get_fingerprint()


@pytest.fixture
def made(api: Caller, vmhost: FakeHost) -> str:
    """A running workspace."""
    made = make(api, vmhost, Status.RUNNING, slug="the-box")
    vmhost.settle()  # after the answer the start looks once more at what the guest has missed
    return made


def ssh(api: Caller) -> dict[str, Any]:
    found: dict[str, Any] = api.get("/workspace/the-box/ssh").json()["ssh"]
    return found


def post(api: Caller, path: str, body: Any = None) -> dict[str, Any]:
    answer = api.post(f"/workspace/the-box/ssh/{path}", body)
    assert answer.status_code == 200, answer.content
    assert answer.json()["success"] is True
    changed: dict[str, Any] = answer.json()["ssh"]
    return changed


def in_guest(made: str) -> list[str] | None:
    """The keys that the guest's server lets in; None while it is off."""
    place: Path = FakeStore(machines_dir()).directory(made) / SSH_FILE
    return place.read_text().splitlines() if place.exists() else None


def test_it_is_off_and_has_no_keys_at_first(api: Caller, made: str) -> None:
    row = Workspace.objects.get()
    assert ssh(api) == {
        "ssh_enabled": False, "ssh_id": made, "host": row.ip, "port": 22, "user": "root",
        "host_key": row.ssh_host_key, "keys": [],
    }  # fmt: skip


def test_where_to_connect_is_at_the_top_level_while_it_is_on(api: Caller, made: str) -> None:
    ip = Workspace.objects.get().ip
    off = api.get("/workspace/the-box/ssh").json()
    assert (off["ssh_enabled"], off["connection"]) == (False, None)
    on = api.post("/workspace/the-box/ssh/enable").json()
    shown = {"user": "root", "host": ip, "port": 22, "command": f"ssh root@{ip}"}
    assert (on["ssh_enabled"], on["connection"]) == (True, shown)
    assert api.post("/workspace/the-box/ssh/key", {"public_key": new_key()}).json()["connection"] == shown
    assert api.get("/workspace/the-box/ssh").json()["connection"] == shown
    assert api.post("/workspace/the-box/ssh/disable").json()["connection"] is None


def test_it_is_switched_hot(api: Caller, made: str) -> None:
    line = new_key()
    assert post(api, "key", {"public_key": line})["applied"] is True
    assert in_guest(made) is None
    for _ in range(2):
        changed = post(api, "enable")
        assert (changed["ssh_enabled"], changed["applied"], changed["problem"]) == (True, True, None)
        assert in_guest(made) == [line]
    shown = api.get("/workspace/the-box/details").json()
    assert shown["ssh"] == {"ssh_enabled": True, "ssh_id": made}
    assert shown["workspace"]["access"] == {"ssh_enabled": True}
    second = new_key()
    post(api, "key", {"public_key": second})
    assert in_guest(made) == [line, second]
    for _ in range(2):
        assert post(api, "disable")["ssh_enabled"] is False
        assert in_guest(made) is None
    assert [key["fingerprint"] for key in ssh(api)["keys"]] == [fingerprint(line), fingerprint(second)]
    events = list(Activity.objects.filter(workspace_id=made, action__startswith="ssh").order_by("id"))
    assert [entry.action for entry in events] == ["ssh_key_added", "ssh_enabled", "ssh_key_added", "ssh_disabled"]
    assert {entry.actor for entry in events} == {"first"}


@pytest.mark.parametrize("by", ["line", "fingerprint", "another comment"])
def test_a_key_is_taken_away(api: Caller, made: str, by: str) -> None:
    first, second = new_key(), new_key()
    post(api, "enable")
    for line in (first, second):
        post(api, "key", {"public_key": line})
    named = {"line": first, "fingerprint": fingerprint(first), "another comment": f"{first} more"}[by]
    left = post(api, "key", {"public_key": named, "remove": True})
    assert [key["fingerprint"] for key in left["keys"]] == [fingerprint(second)]
    assert in_guest(made) == [second]
    answer = api.post("/workspace/the-box/ssh/key", {"public_key": named, "remove": True})
    assert (answer.status_code, answer.json()["code"]) == (404, "ssh_key_not_found")


def test_the_same_key_twice_is_one(api: Caller, made: str) -> None:
    line = new_key("first")
    for text in (line, line, f"  {line}\n"):
        assert len(post(api, "key", {"public_key": text})["keys"]) == 1
    renamed = post(api, "key", {"public_key": " ".join(line.split()[:2]) + " second name"})
    assert [key["comment"] for key in renamed["keys"]] == ["second name"]


@pytest.mark.parametrize(
    ("kind", "options"),
    [("ssh-ed25519", {}), ("ecdsa-sha2-nistp256", {}), ("ecdsa-sha2-nistp521", {}), ("ssh-rsa", {"key_size": 2048})],
)
def test_each_usual_kind_of_key(api: Caller, kind: str, options: Any) -> None:
    row = make_workspace(api.account, status=Status.STOPPED)
    line = new_key("Zoë at work", kind, **options)
    answer = api.post(f"/workspace/{row.pk}/ssh/key", {"public_key": line})
    shown = {"fingerprint": fingerprint(" ".join(line.split()[:2])), "type": kind, "comment": "Zoë at work"}
    assert answer.json()["ssh"]["keys"] == [shown]


def test_a_security_key_and_one_without_a_comment(api: Caller) -> None:
    row = make_workspace(api.account, status=Status.STOPPED)
    blob = "AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIKVTfPnEZmFe2BfBcNBMBBvcVPJpVv4sRrYfMq4D/3KVAAAABHNzaDo="
    answer = api.post(f"/workspace/{row.pk}/ssh/key", {"public_key": f"sk-ssh-ed25519@openssh.com {blob}"})
    assert (answer.status_code, answer.json()["ssh"]["keys"][0]["comment"]) == (200, "")


PUBLIC = PRIVATE.export_public_key().decode().strip()


def rsa_line(*, exponent: bytes, modulus: bytes) -> str:
    """A key of these numbers, which are negative where their first bit is set."""
    parts = [len(part).to_bytes(4, "big") + part for part in (b"ssh-rsa", exponent, modulus)]
    return f"ssh-rsa {base64.b64encode(b''.join(parts)).decode()}"


BAD: dict[str, Any] = {
    "empty": "",
    "no text": 5,
    "null": None,
    "word": "hello",
    "private": PRIVATE.export_private_key().decode(),
    "private PEM": PRIVATE.export_private_key("pkcs8-pem").decode(),
    "private beside": f"{PUBLIC}\n{PRIVATE.export_private_key().decode()}",
    "two": f"{PUBLIC}\n{new_key()}",
    "options": f'command="/bin/sh" {PUBLIC}',
    "another form": PRIVATE.export_public_key("rfc4716").decode(),
    "PEM": PRIVATE.export_public_key("pkcs8-pem").decode(),
    "cut": PUBLIC[:40],
    "wrong type": PUBLIC.replace("ssh-ed25519", "ssh-rsa"),
    "negative RSA": rsa_line(exponent=b"\x80", modulus=b"\x80" * 256),
    "small RSA": new_key(kind="ssh-rsa", key_size=1024),
    "long": f"{PUBLIC} {'x' * 5000}",
    "control": f"{PUBLIC} a\x1bb",
    "fingerprint": fingerprint(PUBLIC),
    "certificate": PRIVATE.generate_user_certificate(PRIVATE, "me").export_certificate().decode(),
}


@pytest.mark.parametrize("bad", list(BAD))
@pytest.mark.parametrize("remove", [False, True])
def test_what_is_no_public_key_is_400(api: Caller, bad: str, remove: bool) -> None:
    row = make_workspace(api.account, status=Status.STOPPED)
    answer = api.post(f"/workspace/{row.pk}/ssh/key", {"public_key": BAD[bad], "remove": remove})
    if remove and bad == "fingerprint":
        assert answer.json()["code"] == "ssh_key_not_found"
        return
    assert (answer.status_code, list(answer.json()["details"])) == (400, ["public_key"])
    assert "b3BlbnNzaC1rZXktdjEA" not in answer.content.decode()
    if "private" in bad:
        assert "private key" in answer.json()["details"]["public_key"][0]
    assert Workspace.objects.get().ssh_keys == []


@pytest.mark.parametrize(
    ("sent", "field"),
    [({}, "public_key"), ({"remove": True}, "public_key"), ({"public_key": PUBLIC, "remove": 1}, "remove")],
)
def test_a_wrong_body_is_400_and_named(api: Caller, sent: Any, field: str) -> None:
    row = make_workspace(api.account, status=Status.STOPPED)
    answer = api.post(f"/workspace/{row.pk}/ssh/key", sent)
    assert (answer.status_code, list(answer.json()["details"])) == (400, [field])


def test_there_are_at_most_32_keys_however_many_come_at_once(api: Caller) -> None:
    row = make_workspace(api.account, status=Status.STOPPED)
    Workspace.objects.update(ssh_keys=[new_key() for _ in range(MAX_KEYS - 4)])
    path = f"/workspace/{row.pk}/ssh/key"

    def add(line: str) -> Any:
        try:
            return api.post(path, {"public_key": line})
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(add, [new_key() for _ in range(8)]))
    assert sorted(answer.status_code for answer in answers) == [200] * 4 + [409] * 4
    refused = next(answer.json() for answer in answers if answer.status_code == 409)
    assert (refused["code"], refused["details"]) == ("ssh_key_limit_exceeded", {"current": 32, "max": 32})
    stored = Workspace.objects.get().ssh_keys
    assert len({fingerprint(line) for line in stored}) == len(stored) == 32
    assert api.post(path, {"public_key": stored[0]}).status_code == 200


@pytest.mark.parametrize("status", [Status.STOPPED, Status.PAUSED, Status.SLEEPING])
def test_what_does_not_run_has_it_at_the_next_start(api: Caller, vmhost: FakeHost, status: Status) -> None:
    made = make(api, vmhost, status, slug="the-box")
    line = new_key()
    for changed in (post(api, "key", {"public_key": line}), post(api, "enable")):
        assert changed["applied"] is False
        assert status in changed["problem"]
    assert ssh(api)["ssh_enabled"] is True
    api.post("/workspace/the-box/stop")
    api.post("/workspace/the-box/start")
    boot = FakeStore(machines_dir()).domain(made).spec.boot  # type: ignore[union-attr]
    assert (boot.ssh, boot.ssh_keys) == (True, (line,))


def test_a_guest_that_does_not_answer_is_reported_and_the_row_stands(api: Caller, vmhost: FakeHost, made: str) -> None:
    vmhost.hold_tasks()
    FakeStore(machines_dir()).save(vmhost.driver._known(made), ready_at=None)
    changed = post(api, "enable")
    assert (changed["ssh_enabled"], changed["applied"]) == (True, False)
    assert changed["problem"]
    assert Workspace.objects.get().ssh_enabled is True


def test_access_asked_for_at_create_is_there(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.RUNNING, slug="the-box", config={"ssh_access": True})
    assert ssh(api)["ssh_enabled"] is True
    assert FakeStore(machines_dir()).domain(made).spec.boot.ssh is True  # type: ignore[union-attr]


def test_a_destroyed_workspace_has_no_access(api: Caller, vmhost: FakeHost) -> None:
    make(api, vmhost, Status.DESTROYED, slug="the-box")
    assert (ssh(api)["ssh_enabled"], ssh(api)["host"], ssh(api)["host_key"]) == (False, None, None)
    for path, body in (("enable", None), ("disable", None), ("key", {"public_key": PUBLIC})):
        answer = api.post(f"/workspace/the-box/ssh/{path}", body)
        assert (answer.status_code, answer.json()["code"]) == (409, "vm_missing")


def test_those_who_switch_at_once_leave_the_guest_as_the_row_says(api: Caller, vmhost: FakeHost, made: str) -> None:
    post(api, "key", {"public_key": PUBLIC})

    def switch(number: int) -> Any:
        try:
            return api.post(f"/workspace/the-box/ssh/{'enable' if number % 2 else 'disable'}")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        assert {answer.status_code for answer in pool.map(switch, range(12))} == {200}
    assert (in_guest(made) is not None) is Workspace.objects.get().ssh_enabled
