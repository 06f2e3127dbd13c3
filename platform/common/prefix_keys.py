"""Texts that begin with others, found by an index, whatever the case and the database's locale."""

from __future__ import annotations

from django.db.models import CharField, F, Q, Value
from django.db.models.functions import Upper
from django.db.models.lookups import GreaterThanOrEqual, LessThan

LAST = chr(0x10FFFF)


class PrefixKey(Upper):
    """The text as it is indexed: in upper case, in the order of its characters. For `Index(PrefixKey("name"), ...)`."""

    template = '%(function)s(%(expressions)s) COLLATE "C"'


def begins_with(column: str, text: str) -> Q:
    """Return rows whose `column` begins with the text, in any case.

    The database puts the text in upper case, too: Python's ß is SS then, and what was typed exactly would not be found.
    """
    key, low, high = (PrefixKey(each) for each in (F(column), _text(text), _text(text + LAST)))
    return Q(GreaterThanOrEqual(key, low)) & Q(LessThan(key, high))


def _text(value: str) -> Value:
    return Value(value, CharField())
