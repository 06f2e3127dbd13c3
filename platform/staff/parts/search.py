"""Conditions of a search in a list of the admin, each of which can use an index of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import AddressValueError, IPv4Address
from typing import Any

from django.db.models import Model, Q

from common.prefix_keys import begins_with
from staff.parts.input import ID

# Rows of another table that a text may name: their ids are a condition for the rows that are listed.
MOST_NAMED = 50


def search_conditions(
    model: type[Model], term: str, fields: Sequence[str], ids: Sequence[str], ips: Sequence[str]
) -> list[Q]:
    """Return the conditions. An id or an IP address is looked up as it is, other texts in `fields`: as a whole
    (`=name`), at the beginning (`^name`, for large tables), or anywhere. For `account__name` the accounts are looked up
    first, a query for each.
    """
    if not term or "\0" in term:
        return [Q(pk__in=())] if term else []
    if ids and ID.fullmatch(term):
        return [Q(**{name: term}) for name in ids]
    if ips and _is_ip(term):
        return [Q(**{name: term}) for name in ips]
    return list(_of_text(model, term, fields))


def _is_ip(term: str) -> bool:
    try:
        return bool(IPv4Address(term))
    except AddressValueError:
        return False


def _condition(how: str, column: str, term: str) -> Q:
    if how == "^":
        return begins_with(column, term)
    return Q(**{column if how == "=" else f"{column}__icontains": term})


def _of_text(model: type[Model], term: str, fields: Sequence[str]) -> Iterator[Q]:
    for name in fields:
        *relations, column = name.lstrip("=^").split("__")
        related: Any = model
        for relation in relations:
            related = related._meta.get_field(relation).related_model
        condition = _condition(name[0], column, term)
        if relations:
            keys = related._default_manager.filter(condition).order_by("-pk").values_list("pk", flat=True)
            yield Q(**{f"{'__'.join(relations)}__in": list(keys[:MOST_NAMED])})
        else:
            yield condition
