"""The one place where response bodies are built: `{"success": true, ...}` and `{"success": false, "error": ...}`.

Used by DRF views (as EXCEPTION_HANDLER), plain and asynchronous views, middleware and Django's own error handlers.
"""

from __future__ import annotations

import errno
import logging
import sys
from collections.abc import Callable
from typing import Any

from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest, JsonResponse, UnreadablePostError
from rest_framework import exceptions as drf
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from common import errors
from common.database_errors import is_database_unavailable, is_row_gone
from common.error_forms import error_form_of
from common.request_id import current_request_id

logger = logging.getLogger(__name__)

# A full disk, and no descriptor left in the process or on the host.
_NOTHING_LEFT = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE}


def ok(status: int = 200, /, **fields: Any) -> Response:
    """Return a success body. Deletes give `message`."""
    return Response({"success": True, **fields}, status=status)


def respond(body: type[Serializer[Any]], status: int = 200, /, **fields: Any) -> Response:
    """Return the success body that `body` declares, of these fields."""
    return Response(body(fields).data, status=status)


def error_body(error: errors.DomainError) -> dict[str, Any]:
    """Return the body of an error, with the request id of the current request."""
    body: dict[str, Any] = {
        "success": False,
        "error": error.name,
        "code": error.code,
        "message": error.message,
        "request_id": current_request_id(),
    }
    if error.details is not None:
        body["details"] = error.details
    return body


def error_response(error: errors.DomainError, path: str = "") -> JsonResponse:
    """Return the response of an error outside DRF; `path` is that of the request, as some routes have a form of their
    own.
    """
    form = error_form_of(path)
    if form is not None:
        return form(error)
    return JsonResponse(error_body(error), status=error.status, headers=error.headers)


def as_domain_error(exc: BaseException) -> errors.DomainError:
    """Translate any exception. An unexpected one is logged here, once, and becomes internal_error."""
    if isinstance(exc, errors.DomainError):
        return exc
    for kinds, make in _TRANSLATIONS:
        if isinstance(exc, kinds):
            return make(exc)
    if is_database_unavailable(exc):
        # Without a traceback: while a disk is full there is one for each request.
        logger.error("the database is unavailable: %s", exc)
        return errors.DatabaseUnavailable()
    if is_row_gone(exc):
        # As with ObjectDoesNotExist. With a traceback: a service that has the row locked does not come here.
        logger.warning("a row was deleted while a request used it", exc_info=exc)
        return errors.NotFound()
    if isinstance(exc, OSError) and exc.errno in _NOTHING_LEFT:
        logger.error("the host has no resources left: %s", exc)
        return errors.DatabaseUnavailable()
    logger.error("unhandled exception", exc_info=exc)
    return errors.DomainError()


def field_messages(detail: Any, prefix: str = "") -> dict[str, list[str]]:
    """Flatten DRF's nested error detail to dotted field -> messages."""
    if isinstance(detail, dict):
        found: dict[str, list[str]] = {}
        for key, value in detail.items():
            found.update(field_messages(value, f"{prefix}.{key}" if prefix else str(key)))
        return found
    if isinstance(detail, list) and any(isinstance(item, dict | list) for item in detail):
        found = {}
        for index, item in enumerate(detail):
            found.update(field_messages(item, f"{prefix}[{index}]"))
        return found
    messages = detail if isinstance(detail, list) else [detail]
    return {prefix or errors.WHOLE_BODY: [str(message) for message in messages]} if messages else {}


# What DRF and Django raise, the more special before the more general.
_TRANSLATIONS: tuple[tuple[Any, Callable[[Any], errors.DomainError]], ...] = (
    (drf.ValidationError, lambda exc: errors.ValidationError(details=field_messages(exc.detail))),
    (drf.ParseError, lambda exc: errors.InvalidJson(str(exc.detail))),
    ((drf.NotAuthenticated, drf.AuthenticationFailed), lambda exc: errors.Unauthorized()),
    ((drf.PermissionDenied, PermissionDenied), lambda exc: errors.Forbidden()),
    # ObjectDoesNotExist: another request removed the row while this one was under way.
    ((drf.NotFound, Http404, ObjectDoesNotExist), lambda exc: errors.NotFound()),
    (drf.MethodNotAllowed, lambda exc: errors.MethodNotAllowed()),
    ((drf.UnsupportedMediaType, drf.NotAcceptable), lambda exc: errors.UnsupportedMediaType()),
    (drf.Throttled, lambda exc: errors.RateLimited(headers={"Retry-After": str(int(exc.wait or 1))})),
    (RequestDataTooBig, lambda exc: errors.PayloadTooLarge()),
    (UnreadablePostError, lambda exc: errors.BodyEndedEarly()),
    (SuspiciousOperation, lambda exc: errors.ValidationError("The request is malformed.")),
)


def drf_exception_handler(exc: Exception, context: dict[str, Any]) -> Response:
    """Handle an exception as DRF's EXCEPTION_HANDLER. Marks the transaction for rollback as DRF's own does."""
    from rest_framework.views import set_rollback

    set_rollback()
    error = as_domain_error(exc)
    return Response(error_body(error), status=error.status, headers=error.headers)


def not_found(request: HttpRequest, exception: Exception | None = None) -> JsonResponse:
    """Return the response of handler404."""
    return error_response(errors.NotFound("There is no such route or resource."), request.path)


def bad_request(request: HttpRequest, exception: Exception | None = None) -> JsonResponse:
    """Return the response of handler400: requests that Django refuses before a view runs (unknown Host header,
    malformed request).
    """
    return error_response(errors.ValidationError("The request is malformed."), request.path)


def server_error(request: HttpRequest) -> JsonResponse:
    """Return the response of handler500: reached by the admin only, as all other paths have their exceptions in the
    middleware.
    """
    exc = sys.exc_info()[1]
    unavailable = exc is not None and is_database_unavailable(exc)
    return error_response(errors.DatabaseUnavailable() if unavailable else errors.DomainError())
