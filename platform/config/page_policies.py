"""What the platform's own pages may load and who may frame them: the API's documentation and the admin.

Every file of both is served by this instance, so nothing of another origin is allowed. Both set styles in their markup.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views.decorators.clickjacking import xframe_options_deny

_SHARED = "img-src 'self' data:; style-src 'self' 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
DOCS_POLICY = (
    f"default-src 'none'; script-src 'self'; connect-src 'self'; font-src 'self'; form-action 'none'; {_SHARED}"
)
# Alpine, which the admin's pages are built on, compiles expressions of the markup.
ADMIN_POLICY = f"default-src 'self'; script-src 'self' 'unsafe-eval'; object-src 'none'; form-action 'self'; {_SHARED}"

View = Callable[..., HttpResponseBase]


def docs_page(view: View) -> View:
    """The view with the headers of the documentation."""

    @wraps(view)
    @xframe_options_deny
    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = view(request, *args, **kwargs)
        response["Content-Security-Policy"] = DOCS_POLICY
        return response

    return respond


def admin_policy(get_response: View) -> View:
    """Middleware of the admin; the frame header is Django's XFrameOptionsMiddleware."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        response["Content-Security-Policy"] = ADMIN_POLICY
        return response

    return respond
