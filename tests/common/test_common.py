"""What every API shares: durations, ids, idempotency, the parser, errors."""

from __future__ import annotations

import json
import re
import sys
import time
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import DatabaseError, models
from django.http import Http404
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st
from rest_framework import exceptions as drf

from common import errors
from common.durations import MAX_SECONDS, format_duration, parse_duration
from common.fields import StrictDecimal
from common.hooks import Hook
from common.idempotency import fingerprint, key_of
from common.ids import new_id
from common.json_objects import MAX_DEPTH, MAX_TOKENS, parse_object
from common.responses import as_domain_error, error_body, field_messages


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30m", 1800), ("1h", 3600), ("24h", 86400), ("1h30m", 5400), ("2d", 172800), ("90", 90), (90, 90), (1.9, 1),
        ("0", 0), (0, 0), (" 5M ", 300), ("1w", 604800), (MAX_SECONDS, MAX_SECONDS),
    ],
)  # fmt: skip
def test_durations(text: Any, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "soon", "1x", "-1", "-5m", "1.5h", "h", "1 h", "1h 30m", True, None, [], {}, -1, MAX_SECONDS + 1, "9" * 50,
     "9" * 12 + "w", 1e300, "\u0661h"],
)  # fmt: skip
def test_what_is_no_duration(text: Any) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@given(st.integers(0, MAX_SECONDS))
def test_a_duration_is_read_back_as_it_is_shown(seconds: int) -> None:
    shown = format_duration(seconds)
    assert re.fullmatch(r"\d+[smhd]", shown)
    assert parse_duration(shown) == seconds


@pytest.mark.parametrize(("sent", "exact"), [(0.1, "0.1"), (10, "10"), (1e-8, "0.00000001"), (9999999.5, "9999999.5")])
def test_amounts_stay_exact(sent: float, exact: str) -> None:
    assert StrictDecimal(max_digits=18, decimal_places=8).run_validation(sent) == Decimal(exact)


@pytest.mark.parametrize("sent", ["1", True, None, [], 1e-9, 1e11, 10**400])
def test_what_is_no_amount(sent: Any) -> None:
    with pytest.raises(drf.ValidationError):
        StrictDecimal(max_digits=18, decimal_places=8).run_validation(sent)


def test_ids_sort_by_time_and_never_repeat() -> None:
    made = []
    for _ in range(20):
        made.append(new_id("ws"))
        time.sleep(0.002)
    assert made == sorted(made)
    assert all(re.fullmatch(r"ws_[a-z2-7]{16}", one) for one in made)
    assert len({new_id("ws") for _ in range(5000)}) == 5000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=5))
def test_the_order_of_fields_makes_no_other_request(body: dict[str, Any]) -> None:
    turned = dict(reversed(body.items()))
    assert fingerprint(body, ignore=frozenset()) == fingerprint(turned, ignore=frozenset())
    assert fingerprint(body, ignore=frozenset()) != fingerprint({**body, "one more": 1}, ignore=frozenset())


def test_ignored_fields_and_types_in_a_fingerprint() -> None:
    ignore = frozenset({"wait"})
    assert fingerprint({"a": 1, "wait": 2}, ignore=ignore) == fingerprint({"a": 1}, ignore=ignore)
    assert len({fingerprint({"a": value}, ignore=ignore) for value in (1, "1", True, None, [1])}) == 5


@pytest.mark.parametrize(
    ("header", "field", "key"),
    [
        (None, None, None),
        ("k", None, "k"),
        (None, "k", "k"),
        ("k", "k", "k"),
        ("x" * 255, None, "x" * 255),
        ("", "", None),
    ],
)
def test_the_idempotency_key_is_the_header_or_the_field(header: str | None, field: str | None, key: str | None) -> None:
    headers = {} if header is None else {"Idempotency-Key": header}
    body = {} if field is None else {"idempotency_key": field}
    assert key_of(RequestFactory().post("/", headers=headers), body) == key


@pytest.mark.parametrize(
    ("header", "field"), [("a", "b"), ("x" * 256, None), (None, "x" * 256), (None, 5), (None, "a\0")]
)
def test_a_wrong_idempotency_key_is_named(header: str | None, field: Any) -> None:
    headers = {} if header is None else {"Idempotency-Key": header}
    with pytest.raises(errors.ValidationError) as raised:
        key_of(RequestFactory().post("/", headers=headers), {"idempotency_key": field})
    assert list(raised.value.details or {}) == ["idempotency_key"]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"", {}),
        (b" \n", {}),
        (b"{}", {}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'{"a": "\\ud83d\\ude00 \\\\u0000"}', {"a": "\U0001f600 \\u0000"}),
        ('{"ä": ["ö", null, 1.5]}'.encode(), {"ä": ["ö", None, 1.5]}),
    ],
)
def test_bodies_that_are_read(raw: bytes, value: Any) -> None:
    assert parse_object(raw) == value


@pytest.mark.parametrize(
    "raw",
    [
        b"{", b"{'a': 1}", b'{"a": NaN}', b'{"a": Infinity}', b'{"a": -Infinity}', b'{"a": 1e400}', b"\xff",
        b'{"a": "\xff"}',
        b'{"a": "\0"}', b"[" * 100_000,
        b'{"a":' * 100_000, b'{"a": 1} x', b'{"a": ' + b"1" * 5000 + b"}",
    ],
    ids=range(13),
)  # fmt: skip
def test_bodies_that_are_invalid_json(raw: bytes) -> None:
    with pytest.raises(errors.InvalidJson):
        parse_object(raw)


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b'{"a": "\\u0000"}', "a"),
        (b'{"a": "x", "b": {"c": [1, "x\\u0000"]}}', "b.c[1]"),
        (b'{"x\\u0000": 1}', "x\\x00"),
        (b'{"a": [{"b": "\\ud800"}]}', "a[0].b"),
        (b'{"a": "\\uDFFF"}', "a"),
        (b'["\\u0000"]', "[0]"),
        (b'"\\u0000"', "body"),
    ],
)
def test_a_text_that_no_database_holds_is_refused_by_its_field(raw: bytes, field: str) -> None:
    with pytest.raises(errors.ValidationError) as refused:
        parse_object(raw)
    (named,) = refused.value.details or {}
    assert named == field
    with_nul = b"\\u0000" in raw
    if with_nul and raw.startswith(b"{"):
        assert parse_object(raw, allow_nul=True)


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ({"name": ["This field is required."]}, "This field is required. (name)"),
        ({"a.b": ["One.", "Two."], "c": ["Three."]}, "One. (a.b, c)"),
        ({"body": ["It is empty."]}, "It is empty."),
        ({f"f{number}": ["No."] for number in range(9)}, "No. (f0, f1, f2, f3, f4)"),
        ({"x" * 200: ["y" * 600]}, f"{'y' * 500} ({'x' * 100})"),
        ({}, "The request is not valid."),
        ({"status": "stopped"}, "The request is not valid."),
    ],
)
def test_a_message_begins_with_what_is_wrong_with_the_first_field(details: dict[str, Any], message: str) -> None:
    assert errors.ValidationError(details=details).message == message
    assert errors.ValidationError("My own.", details=details).message == "My own."


@pytest.mark.parametrize("text", [",[{" * 500_000, '"' * 500_000, "\\" * 500_000, '\\",[' * 200_000])
def test_what_is_inside_of_a_string_is_not_counted(text: str) -> None:
    assert parse_object(json.dumps({"a": text}).encode()) == {"a": text}


@pytest.mark.parametrize("item", [b"{}", b"[]", b"1", b'""', b'{"a":1}'])
def test_a_body_that_would_take_many_times_its_size_is_not_parsed(item: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = b'{"a": [' + b",".join([item] * MAX_TOKENS) + b"]}"
    monkeypatch.setattr(json, "loads", None)
    with pytest.raises(errors.InvalidJson, match="more than"):
        parse_object(raw)


def test_nesting_is_limited_whatever_the_recursion_limit_is() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a": ' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"

    assert "a" in parse_object(nested(MAX_DEPTH))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10 * limit)
    try:
        with pytest.raises(errors.InvalidJson, match="too deeply"):
            parse_object(nested(MAX_DEPTH + 2))
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("raw", [b"[]", b"1", b'"x"', b"null", b"true"])
def test_bodies_that_are_no_object(raw: bytes) -> None:
    with pytest.raises(errors.ValidationError):
        parse_object(raw)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        value: Any = parse_object(raw)
    except (errors.InvalidJson, errors.ValidationError):
        value = {}
    assert isinstance(value, dict)


@pytest.mark.parametrize(
    ("raised", "code", "status"),
    [
        (errors.Conflict("x"), "conflict", 409),
        (drf.ValidationError({"a": ["bad"]}), "validation_error", 400),
        (drf.ParseError(), "invalid_json", 400),
        (drf.NotAuthenticated(), "unauthorized", 401),
        (drf.AuthenticationFailed(), "unauthorized", 401),
        (drf.PermissionDenied(), "forbidden", 403),
        (drf.NotFound(), "not_found", 404),
        (drf.MethodNotAllowed("PUT"), "method_not_allowed", 405),
        (drf.UnsupportedMediaType("x"), "unsupported_media_type", 415),
        (drf.Throttled(wait=3), "rate_limited", 429),
        (Http404(), "not_found", 404),
        (PermissionDenied(), "forbidden", 403),
        (SuspiciousOperation(), "validation_error", 400),
        (models.ObjectDoesNotExist(), "not_found", 404),
        (DatabaseError("Save with update_fields did not affect any rows."), "not_found", 404),
        (ZeroDivisionError("inner"), "internal_error", 500),
    ],
)
def test_every_exception_becomes_one_body(raised: Exception, code: str, status: int) -> None:
    error = as_domain_error(raised)
    assert (error.code, error.status) == (code, status)
    body = error_body(error)
    assert body["success"] is False
    assert "inner" not in body["message"]


def test_a_throttled_response_says_when_to_retry() -> None:
    assert as_domain_error(drf.Throttled(wait=3)).headers == {"Retry-After": "3"}


def test_nested_errors_are_flattened_to_the_field() -> None:
    detail = {"a": {"b": ["one"]}, "c": [{}, {"d": ["two", "three"]}], "e": "four"}
    assert field_messages(detail) == {"a.b": ["one"], "c[1].d": ["two", "three"], "e": ["four"]}


def test_a_hook_calls_each_handler_once_in_order() -> None:
    hook: Hook[[int], int] = Hook("test")
    assert (hook(1), hook.one(1)) == ([], None)

    def double(value: int) -> int:
        return value * 2

    hook.register(double)
    hook.register(double)
    hook.register(lambda value: value + 1)
    assert (hook(5), hook.one(5)) == ([10, 6], 10)
