"""What is wrong with an answer is found; what a value may be after answers that did not come."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.chaos import operations as op
from tests.chaos.answers import Answer, Sent, answer_problems, documented_errors
from tests.chaos.ledger import WORDS, Ledger, Mark, Possible, Tracked, decreased
from tests.chaos.streams import id_problems

SENT = Sent("GET", "/workspace/ws_1", "id-1", WORDS[0], exists=True)


def answer(status: int, body: Any, **headers: str) -> Answer:
    shown = {"x-request-id": "id-1", "content-type": "application/json", **headers}
    return Answer(status, json.dumps(body).encode(), shown)


def error(code: str, **changes: Any) -> dict[str, Any]:
    return {"success": False, "error": code, "code": code, "message": "Why.", "request_id": "id-1", **changes}


def found(given: Answer, sent: Sent = SENT) -> set[str]:
    return {name for name, _ in answer_problems(sent, given, WORDS[1:])}


@pytest.mark.parametrize(
    "given",
    [
        answer(200, {"success": True}),
        answer(409, error("operation_in_progress")),
        answer(503, error("VM_UNAVAILABLE")),
        answer(500, error("CREATE_FAILED")),
        answer(503, error("service_unavailable")),
        answer(404, error("path_not_found")),
        Answer(200, b"bytes", {"x-request-id": "id-1", "content-type": "application/octet-stream"}),
        Answer(0),
    ],
)
def test_a_right_answer_passes(given: Answer) -> None:
    assert found(given) == set()


@pytest.mark.parametrize(
    ("given", "invariant"),
    [
        (answer(200, {"success": True, "name": f"{WORDS[1]}-1"}), "no foreign word in an answer"),
        (answer(200, {"success": True}, location=f"/{WORDS[1]}"), "no foreign word in an answer"),
        (Answer(0, f"id: 1\ndata: {WORDS[1]}".encode()), "no foreign word in an answer"),
        (answer(200, {"success": True}, **{"x-request-id": "id-2"}), "an answer belongs to its request"),
        (answer(200, {"success": False}), "a success is whole"),
        (Answer(200, b'{"success": true, "na', dict(answer(200, {}).headers)), "a success is whole"),
        (answer(500, error("internal_error")), "no internal error"),
        (Answer(502, b"Bad gateway", {"x-request-id": "id-1"}), "every error is documented"),
        (answer(409, error("made_up")), "every error is documented"),
        (answer(503, error("operation_in_progress")), "every error is documented"),
        (answer(503, error("VM_UNAVAILABLE", message="")), "every error is documented"),
        (answer(401, error("unauthorized")), "no valid request is refused"),
        (answer(400, error("invalid_json")), "no valid request is refused"),
        (answer(404, error("not_found")), "no acknowledged workspace is missing"),
    ],
)
def test_a_wrong_answer_is_found(given: Answer, invariant: str) -> None:
    assert invariant in found(given)


def test_a_workspace_that_may_be_gone_may_be_missing() -> None:
    assert found(answer(404, error("not_found")), Sent("GET", "/workspace/ws_1", "id-1", WORDS[0])) == set()


def test_the_documented_errors_are_those_of_the_classes_and_of_the_edge() -> None:
    errors = documented_errors()
    assert errors["guest_disk_full"] == errors["vm_missing"] == {409}  # a status that is inherited
    assert errors["service_unavailable"] == {503}
    assert errors["payload_too_large"] == {413}
    assert "backend_unavailable" not in errors


# Values


def written(*steps: tuple[str, int]) -> Possible:
    """A value after writes of a text, each with the status of its answer."""
    value = Possible("old")
    for text, status in steps:
        op.set_value(value, text, lambda status=status: Answer(status))  # type: ignore[misc]
    return value


@pytest.mark.parametrize(
    ("steps", "values"),
    [
        ([("a", 200)], {"a"}),
        ([("a", 409)], {"old"}),
        ([("a", 0)], {"old", "a"}),
        ([("a", 503), ("b", 200)], {"a", "b"}),  # the first may wait in a socket and overtake the second
        ([("a", 200), ("b", 0), ("b", 409)], {"a", "b"}),
    ],
)
def test_a_value_is_what_the_answers_leave_possible(steps: list[tuple[str, int]], values: set[str]) -> None:
    assert written(*steps).values == values


def test_a_quiet_point_ends_the_doubt() -> None:
    value = written(("a", 0))
    value.settle("a")
    op.set_value(value, "b", lambda: Answer(200))
    assert value.values == {"b"}


def tracked() -> Tracked:
    return Tracked("ws_1", WORDS[0], Possible())


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (Answer(200, b"new"), False),
        (Answer(200, b"ne"), True),
        (answer(404, error("path_not_found")), True),
        (answer(503, error("VM_UNAVAILABLE")), False),
    ],
)
def test_a_file_is_what_was_acknowledged(given: Answer, wrong: bool) -> None:
    assert bool(op.file_problems(tracked(), "/a", Possible("new"), given)) is wrong


def test_totals_that_decrease_are_found() -> None:
    assert decreased({"a": 1, "b": 2}, {"a": 1, "b": 3}) == []
    assert decreased({"a": 1, "b": 2}, {"a": 2, "b": 1}) == ["b went from 2 to 1"]
    assert decreased({"a": 1}, {}) == ["a went from 1 to None"]


def test_a_mark_written_around_the_loss_of_the_memory_is_not_expected() -> None:
    ledger, kept = Ledger(), tracked()
    ledger.workspaces[kept.id] = kept
    ledger.set_mark(kept, Mark("a", "boot"), kept.generation)
    assert ledger.expected_mark(kept, kept.generation) == Mark("a", "boot")
    before = kept.generation
    ledger.lose_memory(kept.id)
    ledger.set_mark(kept, Mark("b", "boot"), before)
    assert ledger.expected_mark(kept, before) is None
    assert ledger.expected_mark(kept, kept.generation) is None


@pytest.mark.parametrize(
    ("last", "seen", "wrong"),
    [
        ("", ["e-5", "e-6"], False),
        ("e-6", ["e-7"], False),
        ("e-6", ["gap", "e-9", "e-10"], False),
        ("e-6", ["gap", "f-1"], False),
        ("e-6", ["e-8"], True),
        ("e-6", ["e-6"], True),
        ("e-6", ["f-1"], True),
        ("", ["e-5", "e-5"], True),
    ],
)
def test_events_follow_each_other(last: str, seen: list[str], wrong: bool) -> None:
    assert bool(id_problems("it", last, seen)) is wrong
