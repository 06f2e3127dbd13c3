"""The base of response objects, and the fields with the wire's forms."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from rest_framework import serializers as s

from common.openapi import MessageResponse
from common.serializers import Amount, BlankAsNull, ResponseSerializer, Timestamp


class Part(ResponseSerializer):
    size = s.IntegerField(source="size_mb")


class Thing(ResponseSerializer):
    name = s.CharField(source="owner.name")
    note = BlankAsNull()
    at = Timestamp(allow_null=True)
    part = Part(source="*")
    other = Part(allow_null=True)
    parts = Part(many=True)
    by_name = s.DictField(child=Part())
    double = s.IntegerField()
    extra = s.CharField(required=False)

    def read_double(self, instance: Any) -> int:
        size: int = instance["size_mb"] if isinstance(instance, dict) else instance.size_mb
        return 2 * size


FIELDS: dict[str, Any] = {
    "owner": SimpleNamespace(name="me"),
    "note": "",
    "at": datetime(2026, 1, 31, 12, 0, 0, 123456, UTC),
    "size_mb": 3,
    "other": None,
    "parts": [SimpleNamespace(size_mb=1), {"size_mb": 2}],
    "by_name": {"a": {"size_mb": 4}},
}
SHOWN: dict[str, Any] = {
    "name": "me",
    "note": None,
    "at": "2026-01-31T12:00:00.123Z",
    "part": {"size": 3},
    "other": None,
    "parts": [{"size": 1}, {"size": 2}],
    "by_name": {"a": {"size": 4}},
    "double": 6,
}


@pytest.mark.parametrize("instance", [FIELDS, SimpleNamespace(**FIELDS)], ids=["dict", "object"])
def test_a_response_object_is_made_from_a_dict_and_from_an_object(instance: Any) -> None:
    shown = Thing(instance).data
    assert shown == SHOWN
    assert list(shown) == list(SHOWN)
    assert Thing([instance], many=True).data == [SHOWN]


def test_an_optional_field_is_left_out_where_its_value_is_missing_or_none() -> None:
    assert "extra" not in Thing({**FIELDS, "extra": None}).data
    assert Thing({**FIELDS, "extra": "x"}).data["extra"] == "x"


def test_a_required_field_must_have_a_value() -> None:
    with pytest.raises(KeyError):
        Part({}).data  # noqa: B018 reading makes the response
    with pytest.raises(AttributeError):
        Part(SimpleNamespace()).data  # noqa: B018 as above


def test_a_default_fills_what_the_instance_does_not_have() -> None:
    assert MessageResponse({"message": "Done."}).data == {"success": True, "message": "Done."}
    assert MessageResponse(SimpleNamespace(message="Done.")).data == {"success": True, "message": "Done."}


def test_amounts_are_numbers() -> None:
    class Priced(ResponseSerializer):
        price = Amount()

    assert Priced({"price": Decimal("0.1")}).data == {"price": 0.1}
