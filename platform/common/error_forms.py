"""Routes whose errors have a form of their own. Apps register theirs in every process, also if nothing responds."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, JsonResponse

from common.errors import DomainError

ErrorForm = Callable[[DomainError], JsonResponse]


def register_error_form(prefix: str, form: ErrorForm, *, bodies_by_view: bool = False) -> None:
    """Register the form of errors below `prefix` that are made outside of views, or before them. Idempotent.

    `bodies_by_view`: the view answers requests whose body was refused and dropped: it raises `refused_body`.
    """
    _forms[prefix] = form
    if bodies_by_view:
        _by_view.add(form)


def is_left_to_view(request: HttpRequest, error: DomainError) -> bool:
    """Return whether the view answers for a body that was refused; it finds why in `refused_body` then."""
    if error_form_of(request.path) not in _by_view:
        return False
    request.refused_body = error  # type: ignore[attr-defined]
    return True


def refused_body(request: HttpRequest) -> DomainError | None:
    """Return why the body of a request was refused; None: it was not."""
    return getattr(request, "refused_body", None)


def error_form_of(path: str) -> ErrorForm | None:
    """Return the form of a request's path; None: the common one."""
    return next((form for prefix, form in _forms.items() if path == prefix or path.startswith(f"{prefix}/")), None)


_forms: dict[str, ErrorForm] = {}
_by_view: set[ErrorForm] = set()
