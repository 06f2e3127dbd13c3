"""One-shot commands of a sandbox."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from sandboxes.level.terminal.views import SHORT_OUTPUT
from tests.sandboxes.level.calls import SandboxCaller
from workspaces.data_plane.json_bodies import SMALL_BODY

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_command_runs_to_its_end(box: SandboxCaller, disk: Path) -> None:
    (disk / "w").mkdir()
    body = {"command": 'printf "$A-%s" "$(basename "$PWD")"; echo oops >&2; exit 3', "cwd": "/w", "env": {"A": "ü"}}
    found = box.post("terminal", body)
    assert isinstance(found.pop("duration"), int)
    assert found == {
        "success": True, "output": "ü-w", "error": "oops\n", "exitCode": 3, "truncated": False, "timedOut": False,
        "encoding": "utf-8", "lossy": False,
    }  # fmt: skip


def test_a_command_that_takes_too_long_is_killed_and_its_output_kept(box: SandboxCaller) -> None:
    found = box.post("terminal", {"command": "echo begun; sleep 60", "timeout": 700})
    assert (found["output"], found["exitCode"], found["timedOut"]) == ("begun\n", 124, True)


def test_output_beyond_the_limit_is_dropped(box: SandboxCaller) -> None:
    found = box.post("terminal", {"command": "head -c 3000000 /dev/zero | tr '\\0' x; printf '\\377' >&2"})
    assert (len(found["output"]), found["truncated"], found["error"]) == (1 << 20, True, "\ufffd")
    assert found["lossy"]


def test_every_byte_of_both_outputs_can_be_had(box: SandboxCaller) -> None:
    found = box.post("terminal", {"command": r"printf 'a\377\0b'; printf '\200' >&2", "encoding": "base64"})
    assert (b64decode(found["output"]), b64decode(found["error"])) == (b"a\xff\0b", b"\x80")
    assert (found["encoding"], found["lossy"]) == ("base64", False)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "command"),
        ({"command": ""}, "command"),
        ({"command": ["ls"]}, "command"),
        ({"command": "a\0b"}, "command"),
        ({"command": "x" * 100_001}, "command"),
        ({"command": "true", "timeout": 0}, "timeout"),
        ({"command": "true", "timeout": 600_001}, "timeout"),
        ({"command": "true", "timeout": "1"}, "timeout"),
        ({"command": "true", "env": {"A B": "x"}}, "env"),
        ({"command": "true", "env": {"A": 1}}, "env"),
        ({"command": "true", "env": {"A": "\0"}}, "env"),
        ({"command": "true", "env": []}, "env"),
        ({"command": "true", "encoding": "hex"}, "encoding"),
    ],
)
def test_a_request_of_a_wrong_kind_is_400(box: SandboxCaller, body: Any, field: str) -> None:
    status, code, details = box.refused("terminal", body)
    assert (status, code, list(details)) == (400, "validation_error", [field])


def test_a_directory_that_does_not_exist_is_400(box: SandboxCaller) -> None:
    assert box.refused("terminal", {"command": "true", "cwd": "/none"})[:2] == (400, "command_invalid")


@pytest.mark.parametrize("size", [10, SMALL_BODY * 2], ids=["read on the loop", "read in a thread"])
def test_commands_of_any_length_are_read_alike(box: SandboxCaller, size: int) -> None:
    assert box.post("terminal", {"command": f"echo a #{'x' * size}"})["output"] == "a\n"
    assert box.refused("terminal", {"command": f"echo a #{'x' * size}", "timeout": 0})[2].keys() == {"timeout"}
    assert box.ask("terminal", b"{" + b" " * size)[0].status_code == 400


def test_answers_of_any_length_have_the_same_headers(box: SandboxCaller) -> None:
    def headers(size: int) -> dict[str, str]:
        response, content = box.ask("terminal", {"command": f"head -c {size} /dev/zero | tr '\\0' x"})
        assert len(json.loads(content)["output"]) == size
        return {name: value for name, value in response.items() if name not in ("X-Request-ID", "Content-Length")}

    short, long = headers(1), headers(SHORT_OUTPUT + 1)
    assert short == long
    assert (short["Content-Type"], short["X-Content-Type-Options"]) == ("application/json", "nosniff")
