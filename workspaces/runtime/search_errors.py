"""Refusals of the search program, as requests of the runtime have its options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from common.errors import ValidationError

# Options that the program names -> parameters of a request.
PARAMETERS = {"query": "q", "options": "ignore_patterns"}


@contextmanager
def parameters_named() -> Iterator[None]:
    """Name what the search program refuses as the request has it."""
    try:
        yield
    except ValidationError as exc:
        details = {PARAMETERS.get(name, name): said for name, said in (exc.details or {}).items()}
        raise ValidationError(details=details) from exc
