"""Commands and logs of a running workspace (specification, Logs; wire contract, section 3)."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.utils import timezone

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.threads import wait_until
from tests.workspaces.rows import make_workspace
from vmbackend.backend import machines_dir
from vmbackend.errors import GuestBusy, GuestUnreachable
from vmbackend.fake.guest import FakeGuestSession
from vmbackend.guest.session import IMAGE_USER
from vmbackend.models import Host
from workspaces import guests
from workspaces.models import Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def made(api: Caller, vmhost: FakeHost) -> str:
    """A running workspace."""
    return api.post("/workspace", {"slug": "the-box"}).json()["workspace"]["id"]


def run(api: Caller, cmd: Any, **more: Any) -> dict[str, Any]:
    answer = api.post("/workspace/the-box/exec", {"cmd": cmd, **more})
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_a_command_answers_with_its_output(api: Caller, made: str) -> None:
    body = run(api, ["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert body["success"] is True
    assert (body["exit_code"], body["stdout"], body["stderr"]) == (3, "out\n", "err\n")
    assert (body["truncated"], body["timed_out"]) == (False, False)
    assert body["duration_ms"] >= 0


@pytest.mark.parametrize(("asked", "user", "working_dir"), [
    ({}, IMAGE_USER, None),
    ({"user": "root"}, "root", None),
    ({"working_dir": "/"}, IMAGE_USER, "/"),
])  # fmt: skip
def test_a_command_runs_as_the_image_says_unless_it_is_asked_for_another(
    api: Caller, made: str, monkeypatch: pytest.MonkeyPatch, asked: dict[str, str], user: str, working_dir: str | None
) -> None:
    """`tests/vmbackend/test_image_rules.py` shows in a machine what that means."""
    seen: list[tuple[str | None, str | None]] = []
    begun = FakeGuestSession.execute

    async def execute(*args: Any, **more: Any) -> Any:
        seen.append((more["user"], more["working_dir"]))
        return await begun(*args, **more)

    monkeypatch.setattr(FakeGuestSession, "execute", execute)
    run(api, ["true"], **asked)
    assert seen == [(user, working_dir)]


def test_a_string_is_run_by_a_shell_and_an_array_is_not(api: Caller, made: str) -> None:
    assert run(api, "echo $((2+3))")["stdout"] == "5\n"
    assert run(api, ["echo", "$((2+3))"])["stdout"] == "$((2+3))\n"


@pytest.mark.parametrize("env", [{"A": "x y"}, ["A=x y"], [{"key": "A", "value": "x y"}]])
def test_a_command_takes_an_environment(api: Caller, made: str, env: Any) -> None:
    assert run(api, 'echo "$A"', env=env)["stdout"] == "x y\n"


def test_a_command_takes_standard_input_and_a_directory(api: Caller, made: str) -> None:
    assert run(api, "cat", stdin=" first\nsecond ")["stdout"] == " first\nsecond "
    run(api, "mkdir -p deep && echo here > deep/note")
    assert run(api, "cat note", working_dir="/deep")["stdout"] == "here\n"


def test_a_command_that_takes_too_long_is_killed_with_all_it_began(api: Caller, made: str) -> None:
    began = timezone.now()
    body = run(api, "sleep 30 & sleep 30", timeout_seconds=1)
    assert (body["exit_code"], body["timed_out"]) == (124, True)
    assert (timezone.now() - began).total_seconds() < 5


@pytest.mark.parametrize("status", [Status.STOPPED, Status.LOST, Status.DELETING])
def test_a_command_whose_machine_ends_is_not_waited_for(
    api: Caller, made: str, monkeypatch: pytest.MonkeyPatch, status: Status
) -> None:
    """What SSH notices after a minute, as nothing comes from a machine that is gone."""
    monkeypatch.setattr(guests, "LOOK_SECONDS", 0.05)
    ended: list[bool] = []

    async def execute(*_: Any, **__: Any) -> Any:
        await asyncio.to_thread(end)
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    def end() -> None:
        Workspace.objects.filter(pk=made).update(status=status)
        connections.close_all()

    monkeypatch.setattr(FakeGuestSession, "execute", execute)
    answer = api.post("/workspace/the-box/exec", {"cmd": "true"})
    assert (answer.status_code, answer.json()["code"]) == (409, "vm_not_running")
    assert str(status) in answer.json()["message"]
    wait_until(lambda: ended == [True])


@pytest.mark.parametrize("status", [Status.RUNNING, Status.PAUSED, Status.SLEEPING, Status.WAKING])
def test_a_command_goes_on_where_its_machine_may_go_on(
    api: Caller, made: str, monkeypatch: pytest.MonkeyPatch, status: Status
) -> None:
    monkeypatch.setattr(guests, "LOOK_SECONDS", 0.01)
    looks: list[str] = []
    found = guests.find_machine_end
    monkeypatch.setattr(guests, "find_machine_end", lambda key: looks.append(key) or found(key))
    begun = FakeGuestSession.execute

    async def execute(*args: Any, **more: Any) -> Any:
        await asyncio.to_thread(change)
        while len(looks) < 3:
            await asyncio.sleep(0.01)
        return await begun(*args, **more)

    def change() -> None:
        Workspace.objects.filter(pk=made).update(status=status)
        connections.close_all()

    monkeypatch.setattr(FakeGuestSession, "execute", execute)
    assert run(api, "echo done")["stdout"] == "done\n"


def test_a_command_outlasts_a_database_that_does_not_answer(
    api: Caller, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guests, "LOOK_SECONDS", 0.01)
    asked: list[str] = []

    def fails(key: str) -> str:
        asked.append(key)
        raise OperationalError("the connection is closed")

    monkeypatch.setattr(guests, "_status_of", fails)
    assert run(api, "sleep 0.3; echo done")["stdout"] == "done\n"
    assert set(asked) == {made}


def test_a_command_killed_by_a_signal_has_128_and_its_number(api: Caller, made: str) -> None:
    assert run(api, "kill -9 $$")["exit_code"] == 137


def test_output_that_is_no_utf8_or_too_much_is_reported(api: Caller, made: str) -> None:
    body = run(api, r"printf 'a\377b'")
    assert (body["stdout"], body["lossy"], body["encoding"]) == ("a\ufffdb", True, "utf-8")
    body = run(api, r"printf 'a\357\277\275b'")
    assert (body["stdout"], body["lossy"]) == ("a\ufffdb", False)
    body = run(api, "head -c 1500000 /dev/zero | tr '\\0' x")
    assert (len(body["stdout"]), body["truncated"], body["exit_code"]) == (1 << 20, True, 0)


def test_every_byte_comes_back_as_it_was_given(api: Caller, made: str) -> None:
    given = bytes(range(256)) * 500
    sent = {"stdin": b64encode(given).decode(), "stdin_encoding": "base64", "encoding": "base64"}
    body = run(api, "tee /dev/stderr", **sent)
    assert [b64decode(body[name]) for name in ("stdout", "stderr")] == [given, given]
    assert (body["encoding"], body["lossy"]) == ("base64", False)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "cmd"), ({"cmd": ""}, "cmd"), ({"cmd": []}, "cmd"), ({"cmd": [""]}, "cmd"), ({"cmd": [1]}, "cmd"),
        ({"cmd": {"a": 1}}, "cmd"), ({"cmd": ["x"] * 257}, "cmd"), ({"cmd": "x" * 70000}, "cmd"),
        ({"cmd": "cat", "stdin": "a", "stdin_encoding": "base64"}, "stdin"),
        ({"cmd": "cat", "stdin": "w\u00fc==", "stdin_encoding": "base64"}, "stdin"),
        ({"cmd": "cat", "stdin_encoding": "hex"}, "stdin_encoding"),
        ({"cmd": "cat", "encoding": "latin-1"}, "encoding"),
        ({"cmd": "true", "env": {"A": 1}}, "env"), ({"cmd": "true", "env": {"1A": "x"}}, "env"),
        ({"cmd": "true", "env": "A=b"}, "env"), ({"cmd": "true", "stdin": 5}, "stdin"),
        ({"cmd": "true", "timeout_seconds": 0}, "timeout_seconds"),
        ({"cmd": "true", "timeout_seconds": 601}, "timeout_seconds"),
        ({"cmd": "true", "timeout_seconds": "5"}, "timeout_seconds"),
        ({"cmd": "true", "working_dir": 5}, "working_dir"), ({"cmd": "true", "user": ["root"]}, "user"),
    ],
)  # fmt: skip
def test_a_wrong_command_is_400_and_named(api: Caller, made: str, body: Any, field: str) -> None:
    answer = api.post("/workspace/the-box/exec", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")
    assert [name.split("[")[0].split(".")[0] for name in answer.json()["details"]] == [field]


@pytest.mark.parametrize("more", [{"cmd": ["/no/such/program"]}, {"working_dir": "/missing"}, {"user": "nobody-here"}])
def test_what_cannot_be_started_is_command_invalid(api: Caller, made: str, more: Any) -> None:
    answer = api.post("/workspace/the-box/exec", {"cmd": ["true"], **more})
    assert (answer.status_code, answer.json()["code"]) == (400, "command_invalid")


@pytest.mark.parametrize("status", [status for status in Status if status != Status.RUNNING])
def test_only_a_running_workspace_has_a_guest(api: Caller, status: Status) -> None:
    row = make_workspace(api.account, status=status)
    answer = api.post(f"/workspace/{row.pk}/exec", {"cmd": "true"})
    assert (answer.status_code, answer.json()["code"]) == (409, "vm_not_running")
    assert answer.json()["details"]["status"] == status


def test_a_guest_that_does_not_answer_is_vm_unavailable(api: Caller, vmhost: FakeHost, made: str) -> None:
    vmhost.driver.pause(made)  # behind our back
    answer = api.post("/workspace/the-box/exec", {"cmd": "true"})
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")


def test_the_boot_log(api: Caller, vmhost: FakeHost, made: str) -> None:
    log = machines_dir() / "directories" / made / "boot.log"
    log.write_bytes(b"one\r\ntwo \xff\n\nthree\n" + b"".join(b"line %d\n" % n for n in range(200)))
    body = api.get("/workspace/the-box/logs").json()
    assert (body["success"], body["source"], len(body["logs"])) == (True, "boot", 100)
    last = body["logs"][-1]
    assert (last["line"], last["message"], last["stream"], last["source"]) == (
        "line 199", "line 199", "console", "boot",
    )  # fmt: skip
    every = api.get("/workspace/the-box/logs?tail_lines=10000&source=boot").json()["logs"]
    assert [entry["line"] for entry in every[:3]] == ["one", "two \ufffd", "three"]
    assert len(api.get("/workspace/the-box/logs?tail_lines=1").json()["logs"]) == 1


@pytest.mark.parametrize("query", ["tail_lines=0", "tail_lines=x", "tail_lines=10001", "source=elsewhere"])
def test_a_wrong_log_query_is_400(api: Caller, made: str, query: str) -> None:
    answer = api.get(f"/workspace/the-box/logs?{query}")
    assert (answer.status_code, list(answer.json()["details"])) == (400, [query.split("=", maxsplit=1)[0]])


def test_logs_of_a_stopped_workspace_are_there_and_of_a_machine_that_never_was_empty(
    api: Caller, vmhost: FakeHost, made: str
) -> None:
    api.post("/workspace/the-box/stop")
    assert api.get("/workspace/the-box/logs").json()["logs"][0]["line"] == "booted"
    row = make_workspace(api.account, status=Status.FAILED, host=Host.objects.get())
    assert api.get(f"/workspace/{row.pk}/logs").json()["logs"] == []
    unplaced = make_workspace(api.account, status=Status.FAILED)
    assert api.get(f"/workspace/{unplaced.pk}/logs").json()["logs"] == []
    assert Workspace.objects.count() == 3


@pytest.mark.parametrize(
    ("now", "status", "code"),
    [
        (Status.STOPPING, 409, "vm_not_running"),
        (Status.STOPPED, 409, "vm_not_running"),
        (Status.SUSPENDING, 409, "vm_not_running"),
        (Status.RUNNING, 503, "VM_UNAVAILABLE"),
        (None, 404, "not_found"),
    ],
)
@pytest.mark.parametrize("route", ["exec", "overlay", "overlay/sync"])
def test_a_guest_that_goes_away_in_a_call_is_reported_as_what_became_of_it(
    api: Caller, made: str, monkeypatch: pytest.MonkeyPatch, route: str, now: Status | None, status: int, code: str
) -> None:
    def change() -> None:
        row = Workspace.objects.filter(pk=made)
        _ = row.delete() if now is None else row.update(status=now)
        connections.close_all()

    async def away(*args: Any, **more: Any) -> None:
        await asyncio.to_thread(change)
        raise GuestUnreachable("The connection was lost.")

    for name in ("execute", "list_directory", "sync"):
        monkeypatch.setattr(FakeGuestSession, name, away)
    method, body = ("GET", None) if route == "overlay" else ("POST", {"cmd": "sleep 9"})
    answer = api.send(method, f"/workspace/the-box/{route}", body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    if status == 409:
        assert answer.json()["details"] == {"status": now}
    Workspace.objects.filter(pk=made).update(status=Status.RUNNING)


def test_a_machine_whose_places_stay_taken_is_429_and_when_to_try_again(
    api: Caller, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(*args: Any, **more: Any) -> None:
        raise GuestBusy("Too many commands run in this machine.")

    monkeypatch.setattr(FakeGuestSession, "execute", busy)
    answer = api.post("/workspace/the-box/exec", {"cmd": "true"})
    assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited")
    assert int(answer.headers["Retry-After"]) > 0
