"""Tasks of a workspace by its runtime: the routes, with a hold of this host as its guest."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.vmbackend.hold_guests import Guests
from tests.vmbackend.local_dropbear import missing_requirement
from tests.workspaces.runtime.conftest import Holder, switched_on
from tests.workspaces.runtime.task_events import start_stream, until_told
from tests.world import assert_error
from vmbackend.fake.guest import FakeGuestSession
from workspaces.runtime.tasks.words import words_of

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools"),
]
MIB = 1 << 20


def execute(holder: Holder, cmd: Any, **more: Any) -> Any:
    return holder.send("POST", "/exec", data=json.dumps({"cmd": cmd, **more}), content_type="application/json")


def executed(holder: Holder, cmd: Any, **more: Any) -> Any:
    answer = execute(holder, cmd, **more)
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_a_task_is_answered_when_it_has_ended(holder: Holder, guests: Guests) -> None:
    task = executed(holder, ["sh", "-c", "echo one; echo two >&2; exit 3"])
    assert task == {
        "success": True, "id": task["id"], "command": ["sh", "-c", "echo one; echo two >&2; exit 3"],
        "status": "exited", "guest_pid": task["guest_pid"], "exit_code": 3, "stdout": "one\n", "stderr": "two\n",
        "truncated": False, "log_truncated": False, "timed_out": False, "created_at": task["created_at"],
        "started_at": task["started_at"], "exited_at": task["exited_at"], "ttl_seconds": 600,
    }  # fmt: skip
    assert task["id"].isdigit()
    assert task["created_at"] <= task["started_at"] <= task["exited_at"]


@pytest.mark.parametrize(
    ("cmd", "mode", "words"),
    [
        ("echo one | cat", "auto", ["sh", "-c", "echo one | cat"]),
        ("true", "auto", ["sh", "-c", "true"]),
        (["true"], "auto", ["true"]),
        (["echo one"], "auto", ["sh", "-c", "echo one"]),
        (["a;b"], "auto", ["sh", "-c", "a;b"]),
        (["X=1"], "auto", ["sh", "-c", "X=1"]),
        (["echo", "a;b"], "auto", ["echo", "a;b"]),
        (["echo", "a b"], "direct", ["echo", "a b"]),
        ("echo one", "direct", ["echo one"]),
        (["echo", "$HOME", "*"], "shell", ["sh", "-c", "echo $HOME *"]),
    ],
)
def test_the_mode_says_what_is_executed(cmd: Any, mode: str, words: list[str]) -> None:
    assert words_of(cmd, mode) == words


def test_a_task_has_its_environment_directory_and_mode(holder: Holder, guests: Guests) -> None:
    task = executed(holder, ["sh", "-c", "echo $WORD; pwd"], env={"WORD": "hello"}, working_dir="/usr")
    assert task["stdout"] == "hello\n/usr\n"
    assert executed(holder, ["echo", "$WORD"], env={"WORD": "x"}, exec_mode="shell")["stdout"] == "x\n"


def test_at_its_deadline_a_task_has_failed_with_124(holder: Holder, guests: Guests) -> None:
    task = executed(holder, "echo begun; sleep 600", timeout_seconds=1)
    assert (task["status"], task["exit_code"], task["timed_out"]) == ("failed", 124, True)
    assert task["stdout"] == "begun\n"


def test_a_program_that_is_not_there_is_a_failed_task(holder: Holder, guests: Guests) -> None:
    task = executed(holder, ["/no/such/program"])
    assert (task["status"], task["exit_code"]) == ("failed", 127)
    assert "/no/such/program" in task["error"]


def test_the_end_of_large_outputs_is_shown(holder: Holder, guests: Guests) -> None:
    task = executed(holder, "seq 1 300000; seq 1 10 >&2")
    everything = "".join(f"{line}\n" for line in range(1, 300001))
    assert task["stdout"] == everything[-MIB:]
    assert task["stderr"] == "".join(f"{line}\n" for line in range(1, 11))
    assert task["truncated"]
    shown = holder.get(f"/exec/{task['id']}").json()
    assert {**shown, "success": True} == task


def test_bytes_that_are_no_text_are_replaced(holder: Holder, guests: Guests) -> None:
    assert executed(holder, "printf 'a\\377b'")["stdout"] == "a\N{REPLACEMENT CHARACTER}b"


def test_tasks_are_listed_the_newest_first_without_outputs(holder: Holder, guests: Guests) -> None:
    made = [executed(holder, ["echo", str(number)])["id"] for number in range(3)]
    tasks = holder.get("/exec").json()["tasks"]
    assert [task["id"] for task in tasks] == made[::-1]
    assert all("stdout" not in task and task["command"][0] == "echo" for task in tasks)


def test_a_removed_task_is_unknown(holder: Holder, guests: Guests) -> None:
    task = executed(holder, "true")["id"]
    body = holder.send("DELETE", f"/exec/{task}").json()
    assert (body["success"], body["task"]["id"]) == (True, task)
    assert_error(holder.get(f"/exec/{task}"), 404, "not_found")
    assert_error(holder.send("DELETE", f"/exec/{task}"), 404, "not_found")
    assert_error(holder.get(f"/exec/stream?task_id={task}"), 404, "not_found")
    assert_error(holder.send("POST", f"/exec/{task}/input", data=b"x", content_type="application/octet-stream"), 404)


def test_all_tasks_are_removed_at_once(holder: Holder, guests: Guests) -> None:
    for _ in range(5):
        executed(holder, "true")
    assert holder.send("DELETE", "/exec").json() == {"success": True, "deleted": 5}
    assert holder.get("/exec").json()["tasks"] == []
    assert holder.send("DELETE", "/exec").json()["deleted"] == 0


def test_input_for_an_ended_task_is_refused(holder: Holder, guests: Guests) -> None:
    task = executed(holder, "true")["id"]
    answer = holder.send("POST", f"/exec/{task}/input", data=b"x", content_type="application/octet-stream")
    assert_error(answer, 409, "task_ended")


def test_another_workspaces_task_is_unknown(api: Caller, holder: Holder, guests: Guests, vmhost: FakeHost) -> None:
    made = api.post("/workspace", {"image": "localhost/tiny:1"}).json()["workspace"]["id"]
    other = switched_on(api, made)
    ids = [executed(holder, "echo mine")["id"] for _ in range(3)]
    assert_error(other.get(f"/exec/{ids[-1]}"), 404, "not_found")
    assert other.get("/exec").json()["tasks"] == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "cmd"),
        ({"cmd": []}, "cmd"),
        ({"cmd": ""}, "cmd"),
        ({"cmd": [""]}, "cmd"),
        ({"cmd": ["a\0b"]}, "cmd"),
        ({"cmd": [1]}, "cmd"),
        ({"cmd": ["x"] * 300}, "cmd"),
        ({"cmd": "true", "exec_mode": "fast"}, "exec_mode"),
        ({"cmd": "true", "timeout_seconds": 0}, "timeout_seconds"),
        ({"cmd": "true", "timeout_seconds": 601}, "timeout_seconds"),
        ({"cmd": "true", "ttl_seconds": 86401}, "ttl_seconds"),
        ({"cmd": "true", "ttl_seconds": "60"}, "ttl_seconds"),
        ({"cmd": "true", "keep_logs": "yes"}, "keep_logs"),
        ({"cmd": "true", "env": {"A B": "1"}}, "env"),
        ({"cmd": "true", "working_dir": "relative"}, "working_dir"),
        ({"cmd": "true", "working_dir": "/" + "x" * 5000}, "working_dir"),
        ({"cmd": "true", "user": "a\0"}, "user"),
    ],
)
def test_wrong_fields_are_named(holder: Holder, guests: Guests, body: dict[str, Any], field: str) -> None:
    answer = holder.send("POST", "/exec", data=json.dumps(body), content_type="application/json")
    assert_error(answer, 400, "validation_error")
    assert any(name.startswith(field) for name in answer.json()["details"])
    assert guests.holds == {}


@pytest.mark.parametrize("id", ["0", "999999999999999999", "1x", "-1"])
def test_ids_that_no_task_has_are_404(holder: Holder, guests: Guests, id: str) -> None:
    assert holder.get(f"/exec/{id}").status_code == 404


def test_more_tasks_than_may_run_are_refused(holder: Holder, guests: Guests, settings: Any) -> None:
    settings.ENV = settings.ENV.model_copy(update={"runtime_tasks_max": 1})

    async def work() -> None:
        request = start_stream(holder, "sleep 600")
        running = asyncio.ensure_future(request.run())
        await until_told(request, lambda told: bool(told.events))
        answer = await asyncio.to_thread(execute, holder, "true")
        assert_error(answer, 429, "rate_limited")
        assert int(answer["Retry-After"]) > 0
        request.leave()
        await running

    asyncio.run(work())


def test_a_machine_with_an_older_kit_says_that_it_needs_a_restart(holder: Holder) -> None:
    assert FakeGuestSession.hold_of is None
    assert_error(execute(holder, "true"), 409, "guest_kit_outdated")
    assert_error(holder.get("/exec"), 409, "guest_kit_outdated")


def test_a_guest_that_does_not_answer_is_unavailable(holder: Holder, guests: Guests) -> None:
    executed(holder, "true")
    guests.of(holder.id).process.kill()
    guests.of(holder.id).process.wait()
    begun = time.monotonic()
    # The next client starts it again, as in a machine.
    assert [task["status"] for task in holder.get("/exec").json()["tasks"]] == ["exited"]
    assert time.monotonic() - begun < 30
