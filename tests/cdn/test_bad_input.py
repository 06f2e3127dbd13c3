"""What a permit refuses: each field is named, and nothing is written."""

from __future__ import annotations

from typing import Any

import pytest

from cdn.models import File, Pool
from tests.callers import Caller
from tests.world import assert_error

pytestmark = pytest.mark.django_db
NEW = {"filename": "cat.png", "size": 10, "contentType": "image/png"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("size", -1),
        ("size", 1.5),
        ("size", "10"),
        ("size", None),
        ("size", True),
        ("size", 2**53),
        ("size", 10**400),
        ("filename", ""),
        ("filename", "a" * 256),
        ("filename", "ä" * 128),
        ("filename", "a\nb"),
        ("filename", "a\x7f"),
        ("filename", "a\x85b"),
        ("filename", 5),
        ("contentType", "a" * 256),
        ("contentType", "image/\x01"),
        ("contentType", None),
        ("tags", "cats"),
        ("tags", [""]),
        ("tags", [" cats"]),
        ("tags", ["cats\u00a0"]),
        ("tags", ["ä" * 33]),
        ("tags", ["a\tb"]),
        ("tags", ["cats", "cats"]),
        ("tags", [str(number) for number in range(33)]),
        ("tags", [1]),
        ("metadata", []),
        ("metadata", {"a": "x" * 20_000}),
        ("variants", []),
        ("variants", {"": {}}),
        ("variants", {"../a": {}}),
        ("variants", {"Thumb": {}}),
        ("variants", {"a" * 33: {}}),
        ("variants", {"a": 5}),
        ("variants", {"a": {"width": 0}}),
        ("variants", {"a": {"width": 100_000}}),
        ("variants", {"a": {"height": "5"}}),
        ("variants", {"a": {"fit": "stretch"}}),
        ("variants", {"a": {"format": "svg"}}),
        ("variants", {"a": {"quality": 101}}),
        ("variants", {f"v{number}": {} for number in range(65)}),
        ("namespace", 5),
    ],
)
def test_a_wrong_field_is_named(api: Caller, field: str, value: Any) -> None:
    refused = api.post("/cdn/token", {**NEW, field: value})
    assert_error(refused, 400, "validation_error")
    assert all(name.startswith(field) for name in refused.json()["details"]), refused.json()
    assert not File.objects.exists()
    assert not Pool.objects.exclude(reserved_bytes=0).exists()


@pytest.mark.parametrize(
    "body", [b'{"filename": "\\ud800", "size": 1, "contentType": ""}', b'{"filename": "a\\u0000"}']
)
def test_names_that_no_text_can_have_are_refused(api: Caller, body: bytes) -> None:
    answer = api.post("/cdn/token", body)
    assert_error(answer, 400, "validation_error")
    assert set(answer.json()["details"]) == {"filename"}


@pytest.mark.parametrize("field", ["filename", "size", "contentType"])
def test_what_is_needed_is_named(api: Caller, field: str) -> None:
    refused = api.post("/cdn/token", {name: value for name, value in NEW.items() if name != field})
    assert set(refused.json()["details"]) == {field}


def test_what_is_allowed_is_kept_exactly(api: Caller) -> None:
    tags = ["Cats", "cats", "ä" * 32, "a b"]
    sent = {**NEW, "filename": " ../ä b\u202e.png ", "tags": tags, "metadata": {"a": [1, {"b": None}]}}
    file = File.objects.get(pk=api.post("/cdn/token", sent).json()["fileId"])
    assert (file.filename, file.tags, file.metadata) == (sent["filename"], tags, sent["metadata"])


def test_an_empty_file_is_complete_with_its_permit(api: Caller) -> None:
    made = api.post("/cdn/token", {**NEW, "size": 0})
    assert made.status_code == 201
    file = File.objects.get(pk=made.json()["fileId"])
    assert (file.status, file.size, file.permit.state) == ("processing", 0, "received")
    assert Pool.objects.get(owner=api.account.pk).open_permits == 0
