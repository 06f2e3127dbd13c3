"""`{"error": {"code", "message", "details"}}`, the form of all errors below /v1/blurs (wire contract, section 1)."""

from __future__ import annotations

from typing import Any

from django.http import JsonResponse

from assist.errors import code_of, status_of
from assist.rate_headers import rate_headers, unknown_caller
from common.errors import DomainError

PREFIX = "/v1/blurs"


def assist_error_body(error: DomainError) -> dict[str, Any]:
    """Return the body of an error: code, message and details, and nothing else."""
    return {"error": {"code": code_of(error), "message": error.message, "details": error.details or {}}}


def assist_error_response(error: DomainError) -> JsonResponse:
    """Return the response to an error that occurs before a view knows whose request it is."""
    headers = {**error.headers, **rate_headers(unknown_caller())}
    return JsonResponse(assist_error_body(error), status=status_of(error), headers=headers)
