"""What cases near an example have of it, and that a fault does not end them."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.api_cases import cases
from tests.api_cases.cases import Kind, send_cases
from tests.api_cases.near_examples import example_of, replace_some
from tests.api_cases.stage import Stages
from tests.api_cases.wsgi import WsgiAnswer

NAME = "POST /workspace/{workspace_id}/workloads"


class _Stages:
    """One stage, of which nothing is used up."""

    def current(self) -> Any:
        return SimpleNamespace(ids={}, headers=lambda *_: {}, values=lambda _: {})

    def note(self, method: str, status: int) -> None:
        pass


def test_some_fields_of_the_example_are_replaced_and_others_stay() -> None:
    shown = example_of(NAME)["body"]
    made = {"other": 1, **dict.fromkeys(shown, "made")}
    bodies = []
    for number in range(50):
        case = SimpleNamespace(body=made, query={}, headers={})
        replace_some(NAME, case, Random(number))
        bodies.append(case.body)
    for name in shown:
        assert {repr(body.get(name)) for body in bodies} == {repr(shown[name]), "'made'"}
    assert {"other" in body for body in bodies} == {True, False}


def test_a_body_that_is_no_object_is_sent_as_it_is() -> None:
    case = SimpleNamespace(body=[1], query=None, headers={})
    replace_some(NAME, case, Random(1))
    assert case.body == [1]


def test_a_fault_does_not_end_the_cases_and_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "answer_of", lambda request: WsgiAnswer(500, {}, b"oops"))
    sent = send_cases(Kind("GET /namespaces"), cast(Stages, _Stages()), 20, 7)
    assert sent.counts == {500: 20}
    [fault] = sent.faults.values()
    assert fault.startswith("500: b'oops'\nGET http://testserver/namespaces")


def test_cases_near_an_example_are_different_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[Any, ...]] = []

    def answer_of(request: Any) -> WsgiAnswer:
        requests.append((request.url, request.body, *request.headers.items()))
        return WsgiAnswer(401, {}, b"")

    monkeypatch.setattr(cases, "answer_of", answer_of)
    monkeypatch.setattr(cases, "send_before", lambda *_: [])
    monkeypatch.setattr(cases, "fault_of", lambda *_: None)
    sent = send_cases(Kind("POST /namespaces", near=True), cast(Stages, _Stages()), 20, 7)
    assert 15 <= sent.counts[401] <= 20
    assert len(set(requests)) == sent.counts.total()
