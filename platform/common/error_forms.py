"""Routes whose errors have a form of their own. Apps register theirs in every process, also where nothing responds."""

from __future__ import annotations

from collections.abc import Callable

from django.http import JsonResponse

from common.errors import DomainError

ErrorForm = Callable[[DomainError], JsonResponse]


def error_form_register(prefix: str, form: ErrorForm) -> None:
    """How errors below `prefix` look that are made outside of views, and before them. Idempotent."""
    _forms[prefix] = form


def error_form_of(path: str) -> ErrorForm | None:
    """The form of a request's path; None: the common one."""
    return next((form for prefix, form in _forms.items() if path == prefix or path.startswith(f"{prefix}/")), None)


_forms: dict[str, ErrorForm] = {}
