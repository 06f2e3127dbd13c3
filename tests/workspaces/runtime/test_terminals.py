"""Terminals of a workspace by its runtime: the routes, with a hold of this host as its guest."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from typing import Any

import pytest

from tests.callers import Caller
from tests.vmbackend.hold_guests import Guests
from tests.vmbackend.local_dropbear import missing_requirement
from tests.workspaces.runtime.conftest import Holder, assert_wrong_field
from tests.world import assert_error
from vmbackend.fake.guest import FakeGuestSession

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools"),
]


def created(holder: Holder, *cmd: str, **more: Any) -> Any:
    answer = create(holder, {"cmd": list(cmd), **more} if cmd else more)
    assert answer.status_code == 200, answer.content
    return answer.json()


def create(holder: Holder, body: Any) -> Any:
    return holder.send("POST", "/terminals", data=json.dumps(body), content_type="application/json")


def listed(holder: Holder) -> Any:
    return holder.get("/terminals").json()["terminals"]


def scrollback(holder: Holder, id: str, query: str = "") -> Any:
    answer = holder.get(f"/terminals/{id}/scrollback{query}")
    assert answer.status_code == 200, answer.content
    return answer.json()


def until_over(holder: Holder, id: str) -> Any:
    for _ in range(200):
        found = next(each for each in listed(holder) if each["id"] == id)
        if not found["alive"]:
            return found
        time.sleep(0.05)
    raise AssertionError("the terminal has not ended")


def test_a_terminal_is_made_listed_and_removed(holder: Holder, guests: Guests) -> None:
    made = created(holder, "sleep", "60", cols=100, rows=40, scrollback_size=2048)
    assert made == {
        "success": True, "id": made["id"], "command": ["sleep", "60"], "cols": 100, "rows": 40, "alive": True,
        "exit_code": None, "created_at": made["created_at"], "scrollback_size": 2048,
    }  # fmt: skip
    assert made["id"].isdigit()
    assert listed(holder) == [{key: value for key, value in made.items() if key != "success"}]
    answer = holder.send("DELETE", f"/terminals/{made['id']}")
    assert (answer.status_code, answer.json()) == (200, {"success": True, "terminal_id": made["id"]})
    assert listed(holder) == []
    assert_error(holder.send("DELETE", f"/terminals/{made['id']}"), 404, "not_found")


def test_without_a_command_it_is_the_users_shell_of_the_usual_size(holder: Holder, guests: Guests) -> None:
    made = created(holder)
    assert (made["command"], made["cols"], made["rows"], made["scrollback_size"]) == ([], 120, 30, 65_536)


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_one_that_has_ended_is_kept_with_its_code_and_output(
    holder: Holder, guests: Guests, script: str, code: int
) -> None:
    made = created(holder, "sh", "-c", f"printf 'one\\377'; {script}")
    assert until_over(holder, made["id"])["exit_code"] == code
    shown = scrollback(holder, made["id"])
    assert b64decode(shown["scrollback"]) == b"one\xff"
    assert {key: shown[key] for key in ("size", "alive", "exit_code", "scrollback_size", "max_scrollback_size")} == {
        "size": 4, "alive": False, "exit_code": code, "scrollback_size": 65_536, "max_scrollback_size": 262_144,
    }  # fmt: skip


def test_the_scrollback_is_the_end_of_the_output(holder: Holder, guests: Guests) -> None:
    made = created(holder, "sh", "-c", "stty -opost; seq 100000", scrollback_size=100_000)
    until_over(holder, made["id"])
    output = "".join(f"{line}\n" for line in range(1, 100_001)).encode()
    shown = scrollback(holder, made["id"])
    assert (shown["size"], b64decode(shown["scrollback"])) == (100_000, output[-100_000:])
    shown = scrollback(holder, made["id"], "?bytes=7")
    assert (shown["size"], b64decode(shown["scrollback"])) == (7, output[-7:])
    assert scrollback(holder, made["id"], "?bytes=0")["scrollback"] == ""
    assert scrollback(holder, made["id"], "?bytes=262144")["size"] == 100_000


def test_nobody_is_waited_for(holder: Holder, guests: Guests) -> None:
    made = created(holder, "sh", "-c", "head -c 3000000 /dev/zero; echo over")
    until_over(holder, made["id"])
    assert b64decode(scrollback(holder, made["id"])["scrollback"]).endswith(b"over\r\n")


def test_an_ended_one_makes_room(holder: Holder, guests: Guests, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.conf import settings

    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"sandbox_terminals_max": 2}))
    ended = created(holder, "true")
    kept = created(holder, "sleep", "60")
    until_over(holder, ended["id"])
    third = created(holder, "sleep", "60")
    assert {each["id"] for each in listed(holder)} == {kept["id"], third["id"]}
    assert_error(create(holder, {"cmd": ["true"]}), 409, "terminal_limit")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"cmd": [""]}, "cmd"),
        ({"cmd": "top"}, "cmd"),
        ({"cmd": ["a\0b"]}, "cmd"),
        ({"cols": 0}, "cols"),
        ({"rows": 1001}, "rows"),
        ({"rows": "many"}, "rows"),
        ({"scrollback_size": 1023}, "scrollback_size"),
        ({"scrollback_size": 262_145}, "scrollback_size"),
    ],
)
def test_a_wrong_field_is_named(holder: Holder, body: Any, field: str) -> None:
    assert_wrong_field(create(holder, body), field)


@pytest.mark.parametrize("query", ["?bytes=-1", "?bytes=262145", "?bytes=x"])
def test_a_wrong_number_of_bytes_is_named(holder: Holder, query: str) -> None:
    assert_wrong_field(holder.get(f"/terminals/1/scrollback{query}"), "bytes")


@pytest.mark.parametrize("id", ["0", "256", "x", "-1", "9999999999", "%F0%9F%92%A9"])
def test_what_no_terminal_has_is_not_found(holder: Holder, guests: Guests, id: str) -> None:
    assert_error(holder.get(f"/terminals/{id}/scrollback"), 404, "not_found")
    assert_error(holder.send("DELETE", f"/terminals/{id}"), 404, "not_found")


def test_a_program_that_is_not_there_is_refused(holder: Holder, guests: Guests) -> None:
    assert_error(create(holder, {"cmd": ["no-such-program"]}), 400, "command_invalid")
    assert listed(holder) == []


def test_a_machine_with_an_older_kit_is_to_be_restarted(
    holder: Holder, guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeGuestSession, "hold_of", None)
    assert_error(create(holder, {}), 409, "guest_kit_outdated")
    assert_error(holder.get("/terminals"), 409, "guest_kit_outdated")


def test_a_stopped_machine_has_no_terminals(api: Caller, holder: Holder, guests: Guests) -> None:
    api.post(f"/workspace/{holder.id}/stop")
    assert_error(holder.get("/terminals"), 409, "vm_not_running")
