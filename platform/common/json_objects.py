"""JSON objects of untrusted text: strict, and bounded in depth and in what they become in memory."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from itertools import islice
from typing import Any

from common import errors

# Above what any route accepts, and below what Python can recurse through in a view, as for the text of an error.
MAX_DEPTH = 850
# Strings, commas and brackets together, far above what any route accepts: a body of nothing but `{},` takes thirty
# times its size in memory.
MAX_TOKENS = 250_000
# A string without an end goes to the end of the body, so that nothing is looked at twice.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,\[{]', re.DOTALL)


def parse_object(raw: bytes, *, allow_nul: bool = False) -> dict[str, Any]:
    """Return the object that the bytes of a body hold. Raise InvalidJson, ValidationError (also for texts that no
    database holds: with a lone surrogate, and without `allow_nul` with NUL).
    """
    if not raw.strip():
        return {}
    try:
        require_few_tokens(raw)
        text = raw.decode("utf-8-sig")
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        if "\\u0000" in text or "\\ud" in text.lower() or "\0" in text:
            _require_storable(value, allow_nul=allow_nul)
        if text.count("[") + text.count("{") > MAX_DEPTH and is_deeper(value, MAX_DEPTH):
            raise ValueError("it is nested too deeply")
    except (ValueError, RecursionError) as exc:
        raise errors.InvalidJson(f"The body is not valid JSON: {_reason(exc)}.") from exc
    if not isinstance(value, dict):
        raise errors.ValidationError("The body must be a JSON object.")
    return value


def is_deeper(value: Any, levels: int) -> bool:
    """Return whether objects and arrays are nested deeper than that. Without recursion: Python may not recurse as
    deep.
    """
    level = [value]
    for _ in range(levels + 1):
        level = [item for outer in level for item in _inside(outer)]
        if not level:
            return False
    return True


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def require_few_tokens(raw: bytes, limit: int = MAX_TOKENS) -> None:
    """Raise ValueError. Before the JSON is parsed: what it becomes then may be more than the memory."""
    if len(raw) > limit and next(islice(_TOKEN.finditer(raw), limit, None), None) is not None:
        raise ValueError(f"it has more than {limit} strings, commas and brackets")


def _reason(exc: Exception) -> str:
    if isinstance(exc, RecursionError):
        return "it is nested too deeply"
    if isinstance(exc, UnicodeDecodeError):
        return "it is not UTF-8"
    return str(exc)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is out of range")
    return value


def _require_storable(value: Any, place: str = "", *, allow_nul: bool) -> None:
    """Raise ValidationError for a text that no database holds, which names its field."""
    if isinstance(value, str):
        problem = _text_problem(value, allow_nul)
        if problem:
            raise errors.ValidationError(details={place or errors.WHOLE_BODY: [problem]})
    elif isinstance(value, dict):
        for key, item in value.items():
            shown = ascii(key)[1:-1][: errors.MAX_FIELD_NAME]
            inner = f"{place}.{shown}" if place else shown
            _require_storable(key, inner, allow_nul=allow_nul)
            _require_storable(item, inner, allow_nul=allow_nul)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _require_storable(item, f"{place}[{index}]", allow_nul=allow_nul)


def _text_problem(text: str, allow_nul: bool) -> str:
    if "\0" in text and not allow_nul:
        return "Null characters are not allowed."
    try:
        text.encode()
    except UnicodeEncodeError:
        return "A lone surrogate is not a character."
    return ""
