"""Paths inside the guest, as callers give and read them.

Names there are bytes. What is no UTF-8 is shown with replacement characters and, beside them, as the percent-encoded
bytes, which a query takes as it takes any path.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, quote_from_bytes

from django.http import HttpRequest

from common.errors import ValidationError

MAX_PATH = 4096
MAX_QUERY_FIELDS = 100


def query_path(request: HttpRequest, default: str = "") -> str:
    """`path` of the query, bytes that are no UTF-8 as surrogates. Raises ValidationError."""
    query = request.META.get("QUERY_STRING", "")
    try:
        fields = parse_qsl(query, errors="surrogateescape", max_num_fields=MAX_QUERY_FIELDS)
    except ValueError as exc:
        raise ValidationError("The query has too many fields.") from exc
    given = [value for name, value in fields if name == "path"]
    return _checked(given[-1] if given else default, "surrogateescape")


def checked_path(path: Any) -> str:
    """`path` of a body: JSON has characters only. Raises ValidationError."""
    return _checked(path, "strict")


def _checked(path: Any, errors: str) -> str:
    if not isinstance(path, str) or not path.startswith("/") or len(path) > MAX_PATH or not _is_path(path, errors):
        raise ValidationError(details={"path": [f"An absolute path of at most {MAX_PATH} characters is required."]})
    return path


def _is_path(path: str, errors: str) -> bool:
    """Whether a path has bytes, and no NUL among them."""
    try:
        return b"\0" not in path.encode("utf-8", errors)
    except UnicodeEncodeError:
        return False


def displayed_path(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def encoded_path(path: str) -> str | None:
    """The percent-encoded bytes of a path that cannot be shown as it is, else None."""
    return None if displayed_path(path) == path else quote_from_bytes(path.encode("utf-8", "surrogateescape"))
