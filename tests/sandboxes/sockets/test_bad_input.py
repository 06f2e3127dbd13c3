"""What is no message is answered by an error, and the socket stays open."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxes.sockets.messages import MAX_INPUT, Input, MessageInvalid, parse_binary, parse_text
from tests.sandboxes.sockets.conftest import Box

VALUES = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        -1,
        255,
        256,
        10**30,
        0.5,
        float("nan"),
        "",
        "x",
        "\0",
        "\ud800",
        "é" * 5000,
        [],
        ["x"],
        [1],
        {},
    ]
)
NAMES = (
    "id",
    "terminalId",
    "cols",
    "rows",
    "d",
    "n",
    "offset",
    "maxLines",
    "cwd",
    "command",
    "args",
    "path",
    "ack",
    "watchId",
    "ignorePatterns",
)
KINDS = [
    {"action": "terminal_create"}, {"action": "terminal_attach"}, {"action": "get_state"}, {"action": "terminal_close"},
    {"action": "terminal_list"}, {"a": "i"}, {"a": "r"}, {"a": "k"}, {"type": "watch"}, {"type": "stop_watch"}, {},
]  # fmt: skip


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from((*NAMES, "requestId")), VALUES))
def test_any_fields_are_a_message_or_are_refused(kind: dict[str, Any], fields: dict[str, Any]) -> None:
    refused = None
    try:
        parse_text(json.dumps({**kind, **fields}))
    except MessageInvalid as error:
        refused = error
    if refused is not None:
        assert refused.code in ("validation_error", "unknown_action", "terminal_not_found")
        assert refused.request_id == (None if "requestId:" in refused.message else fields.get("requestId"))


@given(st.text() | st.sampled_from(["[" * 100_000, "1" * 10_000, "null", '{"a":', "NaN"]))
def test_any_text_is_a_message_or_is_refused(text: str) -> None:
    with pytest.raises(MessageInvalid):
        parse_text(text)


@pytest.mark.parametrize(
    ("sent", "code", "about"),
    [
        ("{", "invalid_json", "terminal_error"),
        ("[]", "invalid_json", "terminal_error"),
        ('{"action": "fly"}', "unknown_action", "terminal_error"),
        ('{"action": ["terminal_list"]}', "unknown_action", "terminal_error"),
        ('{"action": "terminal_create", "cols": 0}', "validation_error", "terminal_error"),
        ('{"action": "terminal_create", "rows": 1001}', "validation_error", "terminal_error"),
        ('{"action": "terminal_create", "rows": true}', "validation_error", "terminal_error"),
        ('{"action": "terminal_create", "rows": "9"}', "validation_error", "terminal_error"),
        ('{"action": "terminal_create", "cwd": "/a\\u0000"}', "validation_error", "terminal_error"),
        (json.dumps({"action": "terminal_create", "cwd": "/" * 4096}), "validation_error", "terminal_error"),
        ('{"action": "terminal_create", "args": ["x"]}', "validation_error", "terminal_error"),
        ('{"a": "i", "id": 1, "d": 5}', "validation_error", "terminal_error"),
        ('{"a": "i", "id": 1, "d": "\\ud800"}', "validation_error", "terminal_error"),
        ('{"a": "i", "id": "1", "d": "x"}', "validation_error", "terminal_error"),
        ('{"a": "r", "id": 1, "cols": 80}', "validation_error", "terminal_error"),
        ('{"a": "k", "id": 1, "n": -1}', "validation_error", "terminal_error"),
        ('{"a": "i", "id": 256, "d": "x"}', "terminal_not_found", "terminal_error"),
        ('{"type": "watch", "ignorePatterns": "*.o"}', "validation_error", "watch_error"),
        ('{"type": "watch", "ignorePatterns": ["a\\nb"]}', "validation_error", "watch_error"),
        ('{"type": "watch", "ignorePatterns": ["!/"]}', "validation_error", "watch_error"),
        ('{"type": "watch", "ignorePatterns": ["a\\u0000"]}', "validation_error", "watch_error"),
        ('{"type": "watch", "path": "a"}', "validation_error", "watch_error"),
        ('{"type": "watch", "path": "/a\\u0000"}', "validation_error", "watch_error"),
        ('{"type": "stop_watch", "watchId": "1"}', "validation_error", "watch_error"),
    ],
)
def test_messages_that_are_refused(sent: str, code: str, about: str) -> None:
    with pytest.raises(MessageInvalid) as refused:
        parse_text(sent)
    assert (refused.value.code, refused.value.about) == (code, about)


def test_input_has_a_mebibyte() -> None:
    assert parse_binary(b"\1" + b"x" * MAX_INPUT)
    for refuse in (
        lambda: parse_binary(b"\1" + b"x" * (MAX_INPUT + 1)),
        lambda: parse_text(json.dumps({"a": "i", "id": 1, "d": "x" * (MAX_INPUT + 1)})),
    ):
        with pytest.raises(MessageInvalid) as refused:
            refuse()
        assert refused.value.code == "input_too_large"
    with pytest.raises(MessageInvalid):
        parse_binary(b"")


@pytest.mark.parametrize("filler", ["[],", "{},", "0,", '"",'])
def test_a_message_of_a_hundred_thousand_parts_is_not_parsed(filler: str) -> None:
    ignored = filler * 100_000
    with pytest.raises(MessageInvalid) as refused:
        parse_text(f'{{"action": "terminal_list", "more": [{ignored} 0]}}')
    assert refused.value.code == "invalid_json"


def test_long_input_and_many_arguments_are_few_parts() -> None:
    for text in ("," * (1 << 20), "[" * (1 << 20), '"' * (1 << 19), "\\" * (1 << 19)):
        message, _ = parse_text(json.dumps({"a": "i", "id": 1, "d": text}))
        assert isinstance(message, Input)
        assert message.data == text.encode()
    command = {"action": "terminal_create", "command": "x", "args": [","] * 4096}
    parse_text(json.dumps(command))


@pytest.mark.django_db(transaction=True)
def test_a_socket_outlives_bad_messages(box: Box) -> None:
    client = box.connect()
    made = {"action": "terminal_create", "command": "cat", "args": [], "requestId": "made"}
    id = client.ask("terminal_created", **made)["terminalId"]
    absent = [
        {"action": "get_state", "id": 99},
        {"a": "r", "id": 99, "cols": 9, "rows": 9},
        {"a": "i", "id": 99, "d": ""},
    ]
    for message in absent:
        refused = client.ask("terminal_error", **message, requestId="x")
        assert (refused["code"], refused["requestId"]) == ("terminal_not_found", "x")
    refused = client.ask("terminal_error", action="terminal_create", command="/none/such", args=[], requestId="y")
    assert (refused["code"], refused["requestId"]) == ("command_invalid", "y")
    refused = client.ask("terminal_error", action="terminal_attach", id=id, offset=10**6)
    assert refused["code"] == "validation_error"
    number = random.Random(5)
    for _ in range(300):
        kind = number.choice([*KINDS, {"action": "none"}])
        fields = {name: number.choice([None, -1, 99, "x", [], {}, True, 1e400]) for name in number.sample(NAMES, 3)}
        if kind != {"action": "terminal_create"}:
            client.send(**kind, **fields)
        client.send_raw(bytes([number.randrange(200, 256)]) + b"x" if number.random() < 0.5 else "\N{PILE OF POO}{")
    client.send_raw(b"")
    client.send(action="terminal_list", requestId="alive")
    while client.expect("terminal_list").get("requestId") != "alive":
        pass
    client.send(a="i", id=id, d="still here\r")
    client.read_until(id, b"still here\r\nstill here\r\n")


@pytest.mark.django_db(transaction=True)
def test_a_message_above_two_mebibytes_is_1009_and_costs_no_other_socket(box: Box) -> None:
    first, second = box.connect(), box.connect()
    first.send_raw(b"\1" + b"x" * (3 << 20))
    assert first.wait_closed().code == 1009
    second.ask("terminal_list", action="terminal_list")
