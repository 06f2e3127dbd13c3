"""The reader of file writes (`workspaces.files.upload`): JSON as the standard library reads it, in constant memory."""

from __future__ import annotations

import base64
import io
import json
import random
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from common.errors import InvalidJson, PayloadTooLarge, ValidationError
from workspaces.files.upload import read_upload

LIMIT = 1 << 20
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
fields = st.dictionaries(st.text(max_size=12).filter(lambda key: key != "content"), anything, max_size=5)
quick = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def in_pieces(body: bytes, sizes: list[int]) -> Callable[[int], bytes]:
    """A reader that gives the body in pieces of these sizes, over and over."""
    stream = io.BytesIO(body)
    turn = iter(range(1 << 30))
    return lambda wanted: stream.read(min(wanted, sizes[next(turn) % len(sizes)]))


def read(body: bytes, sizes: list[int] | None = None, limit: int = LIMIT) -> tuple[dict[str, Any], bytes]:
    spool = io.BytesIO()
    upload = read_upload(in_pieces(body, sizes or [1 << 20]), spool, limit)
    data = spool.read()
    assert upload.size == len(data)
    return upload.fields, data


def escaped(text: str, seed: int) -> str:
    """Spell some characters as JSON escapes, as encoders do: every `/` as `\\/`, others as `\\uXXXX`, line ends."""
    dice = random.Random(seed)
    made = []
    for character in text:
        roll = dice.random()
        if character == "/" and roll < 0.7:
            made.append("\\/")
        elif roll < 0.2:
            made.append(f"\\u{ord(character):04{'x' if roll < 0.1 else 'X'}}")
        else:
            made.append(character)
        if dice.random() < 0.02:
            made.append("\\r\\n")
    return "".join(made)


@quick
@given(
    others=fields,
    data=st.binary(max_size=300),
    at=st.integers(0, 5),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    seed=st.integers(0, 1 << 16),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 0, 2]),
)
@example(
    others={}, data=b"\xff" * 60, at=0, sizes=[1], seed=3, ascii_only=True, indent=None
)  # base64 of many slashes, cut everywhere
def test_any_object_is_read_as_the_standard_library_reads_it(
    others: dict[str, Any], data: bytes, at: int, sizes: list[int], seed: int, ascii_only: bool, indent: int | None
) -> None:
    items = list(others.items())
    items.insert(at, ("content", "@@here@@"))
    whole = json.dumps(dict(items), ensure_ascii=ascii_only, indent=indent)
    text = escaped(base64.b64encode(data).decode(), seed)
    body = whole.replace('"@@here@@"', f'"{text}"', 1).encode()
    expected = json.loads(body)
    assert base64.b64decode(expected.pop("content")) == data
    got, content = read(body, sizes)
    assert content == data
    assert got == expected


@quick
@given(st.binary(max_size=200), st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_garbage_raises_nothing_but_an_answer(body: bytes, sizes: list[int]) -> None:
    with suppress(InvalidJson, ValidationError):
        read(body, sizes)


@quick
@given(st.data())
def test_a_damaged_body_raises_nothing_but_an_answer(data: st.DataObject) -> None:
    body = bytearray(b'{"path": "/a b", "n": [1, {"x": null}], "content": "QUJD\\/\\u002bAA="}')
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    with suppress(InvalidJson, ValidationError):
        read(bytes(body[:cut]), [data.draw(st.integers(1, 30))])


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_numbers_may_be_cut_anywhere(size: int) -> None:
    body = b'{"a": 0.0, "b": -12.5e+3, "c": 1E-2, "d": [1.5], "e": 7, "content": "", "f": 10}'
    expected = {"a": 0.0, "b": -12500.0, "c": 0.01, "d": [1.5], "e": 7, "f": 10}
    assert read(body, [size]) == (expected, b"")


@pytest.mark.parametrize("length", [505, 506, 507, 4088, 4096, 60_000])
def test_values_may_end_at_any_place_of_a_buffer(length: int) -> None:
    """The decoder is given a growing part of the buffer: what it finds must not depend on where a part ends."""
    fields = {"a": "x" * length, "b": 12345.5, "c": ["ü" * 300, {"d": -1e3}], "e": True, "f": 7}
    body = json.dumps({**fields, "content": ""}, ensure_ascii=False).encode()
    assert read(body, [len(body)]) == (fields, b"")
    number = b'{"n":' + b" " * (length - 20) + b"123456789.25e2, " + b'"content": ""}'
    assert read(number, [len(number)]) == ({"n": 12345678925.0}, b"")


def test_more_than_1000_fields_are_refused() -> None:
    body = b"{" + b'"a": 1, ' * 1001 + b'"content": ""}'
    with pytest.raises(InvalidJson, match="1000 fields"):
        read(body, [len(body)])
    assert read(body.replace(b'"a": 1, ', b"", 1), [len(body)]) == ({"a": 1}, b"")


@pytest.mark.parametrize("size", range(1, 30))
def test_escapes_may_be_cut_anywhere(size: int) -> None:
    text = "\\/\\/\\/\\u002b\\/A\\u002B+\\/\\/\\u002f\\/"
    plain = "///+/A++////"
    assert read(f'{{"content":"{text}"}}'.encode(), [size]) == ({}, base64.b64decode(plain))


@pytest.mark.parametrize(
    "content",
    ["Q", "QQ", "QQQ", "QQ=", "=QQQ", "QQ==QQ==", "QQ==\\nQQ==", "QUJDQQ==QUJD", "Q!==", "ü", "QQ==\\u0000", "\\ud800"],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_what_is_no_base64_is_refused_however_it_comes(content: str, size: int) -> None:
    with pytest.raises((ValidationError, InvalidJson)):
        read(f'{{"content": "{content}"}}'.encode(), [size])


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"[]", b'"x"', b"null", b"{", b'{"content": "QQ=="', b'{"content": "QQ==', b'{"content"}',
        b'{"content": "QQ=="} x', b'{"content": "QQ==",}', b'{"content": "QQ==" "a": 1}', b'{1: 2, "content": ""}',
        b'{"content": "QQ==", "content": "QUI="}', b'{"a": 01, "content": ""}', b"{'content': ''}",
        b'{"content": "\\x41"}', b'{"content": "\\uZZZZ' + b"A" * 3000 + b'"}', b'{"a": ' + b"[" * 5000,
        b'{"a": "' + b"x" * 70000 + b'", "content": ""}',
    ],
    ids=range(20),
)  # fmt: skip
def test_broken_bodies_are_invalid_json(body: bytes) -> None:
    for sizes in ([1 << 20], [7]):
        with pytest.raises(InvalidJson):
            read(body, sizes)


@pytest.mark.parametrize(
    "body", [b"{}", b'{"path": "/x"}', b'{"content": null}', b'{"content": ["QQ=="]}', b'{"content": 5}']
)
def test_a_missing_content_is_named(body: bytes) -> None:
    with pytest.raises(ValidationError) as raised:
        read(body)
    assert list(raised.value.details or {}) == ["content"]


def test_the_limit_is_of_decoded_bytes() -> None:
    body = b'{"content": "' + base64.b64encode(b"x" * 1000) + b'"}'
    assert read(body, limit=1000)[1] == b"x" * 1000
    with pytest.raises(PayloadTooLarge):
        read(body, [100], limit=999)


def test_a_large_file_takes_little_memory(tmp_path: Any) -> None:
    block = base64.b64encode(bytes(range(256)) * 3 * 256).replace(b"/", b"\\/")
    blocks = [b'{"path": "/x", "content": "', *[block] * 64, b'"}']
    pieces = iter(blocks)
    with (tmp_path / "spool").open("w+b") as spool:
        tracemalloc.start()
        upload = read_upload(lambda size: next(pieces, b""), spool, 64 << 20)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert upload.size == 64 * 3 * 65536
    assert peak < 4 << 20
