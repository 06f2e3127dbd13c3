"""What is sent: checked, converted, and fitted to what a provider takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notifications.content import Content, TooLarge, compact_json, content_of, fitted
from tests.notifications.senders import Sender
from tests.world import assert_error


@given(body=st.text(max_size=4000), title=st.text(max_size=20), most=st.integers(100, 4096))
def test_a_body_is_cut_as_little_as_possible_and_between_characters(body: str, title: str, most: int) -> None:
    try:
        content = Content(title, body, {"k": "v"})
        compact_json(content.as_json())
    except UnicodeEncodeError:
        return

    def size(text: str) -> int:
        return len(compact_json({"title": title, "body": text, "data": {"k": "v"}}))

    try:
        found = fitted(content, most)
    except TooLarge:
        assert size("") > most
        return
    assert body.startswith(found.body)
    assert size(found.body) <= most
    assert found.body == body or size(body[: len(found.body) + 1]) > most


def test_data_is_strings_and_names_its_sender() -> None:
    made = content_of(
        title="", body="b", data={"n": 1.5, "workspace_id": "x"}, workspace_id="ws_1", metadata={"channel": "c"}
    )
    assert made.data == {"n": "1.5", "workspace_id": "ws_1", "channel": "c"}
    for channel in ("", 7, None, "x" * 65):
        other = content_of(title="t", body="", data={}, workspace_id="w", metadata={"channel": channel})
        assert other.data["channel"] == "workspace"


BAD: list[tuple[Any, str]] = [
    ({}, "title"),
    ({"title": "", "body": " "}, "title"),
    ({"title": "x" * 201}, "title"),
    ({"title": 5}, "title"),
    ({"title": None, "body": "b"}, "title"),
    ({"body": "x" * 4001}, "body"),
    ({"body": ["x"]}, "body"),
    ({"body": "x", "data": "no object"}, "data"),
    ({"body": "x", "data": [1]}, "data"),
    ({"body": "x", "data": {"k": "v" * 4096}}, "data"),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("body", "field"), BAD)
def test_what_is_wrong_is_named(sender: Sender, body: Any, field: str) -> None:
    answer = sender.post(body)
    assert_error(answer, 400, "validation_error")
    assert list(answer.json()["details"]) == [field]


NO_TEXT = [
    (r'{"body": "x", "data": {"k": "\ud800"}}', "data.k"),
    (r'{"body": "x", "data": {"k": ["\ud800"]}}', "data.k[0]"),
    (r'{"body": "x", "data": {"\ud800": 1}}', r"data.\ud800"),
    (r'{"body": "x\ud800"}', "body"),
    (r'{"title": "x\u0000"}', "title"),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("body", "field"), NO_TEXT)
def test_what_is_no_text_is_refused(sender: Sender, body: str, field: str) -> None:
    answer = sender.post(body)
    assert_error(answer, 400, "validation_error")
    assert list(answer.json()["details"]) == [field]


@pytest.mark.django_db
def test_broken_bodies_are_refused(sender: Sender) -> None:
    assert_error(sender.post("{"), 400, "invalid_json")
    assert_error(sender.post("[]"), 400)
    assert sender.post({"title": "x", "unknown": 1}).status_code == 200
