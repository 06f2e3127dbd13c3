"""The content security policies of the platform's own pages: the API's documentation and the admin.

They say what a page may load and who may frame it. Every file of both is served by this instance, so nothing of another
origin is allowed. Both set styles in their markup.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views.decorators.clickjacking import xframe_options_deny

from edge.addresses import sandbox_address

_SHARED = "img-src 'self' data:; style-src 'self' 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
DOCS_POLICY = (
    f"default-src 'none'; script-src 'self'; connect-src 'self'; font-src 'self'; form-action 'none'; {_SHARED}"
)
# Alpine, which the admin's pages are built on, compiles expressions of the markup (docs/security.md, Staff). A form may
# lead to a sandbox.
ADMIN_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; object-src 'none'; form-action 'self'{sandboxes}; " + _SHARED
)
# The admin uses no device of its reader.
ADMIN_PERMISSIONS = "camera=(), microphone=(), geolocation=(), payment=(), usb=(), serial=(), hid=(), midi=()"

View = Callable[..., HttpResponseBase]


def docs_page(view: View) -> View:
    """Return the view with the headers of the documentation."""

    @wraps(view)
    @xframe_options_deny
    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = view(request, *args, **kwargs)
        response["Content-Security-Policy"] = DOCS_POLICY
        return response

    return respond


def admin_policy(get_response: View) -> View:
    """Return middleware of the admin; the frame header is Django's XFrameOptionsMiddleware."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        sandboxes = sandbox_origins(settings.ENV.sandbox_url)
        response["Content-Security-Policy"] = ADMIN_POLICY.format(sandboxes=sandboxes)
        response["Permissions-Policy"] = ADMIN_PERMISSIONS
        return response

    return respond


def sandbox_origins(template: str) -> str:
    """For a policy, after a space: the origins of sandboxes by host. By path they have the platform's own."""
    suffix = sandbox_address(template).suffix
    if not suffix:
        return ""
    scheme, port = urlsplit(template).scheme, template.rpartition(suffix)[2]
    return f" {scheme}://*{suffix}{port}"
