"""The admin is closed to a session until the user's second factor has verified it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse

from staff.second_factor.services import factor_of

VERIFY, SETUP = "second-factor", "second-factor-setup"


def second_factor_required(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Any:
    """Return middleware of the admin, after Django's authentication and django-otp's. One query for each page."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        place = _place_before(request)
        if place is None:
            return get_response(request)
        # If a form was to be sent, it would be lost: the page before it is as good as any.
        query = f"?{urlencode({'next': request.get_full_path()})}" if request.method == "GET" else ""
        return HttpResponseRedirect(reverse(place) + query)

    return respond


def _place_before(request: HttpRequest) -> str | None:
    """Return the name of the page that comes first; None if this one may be answered."""
    mode, user = settings.ENV.admin_second_factor, request.user
    if mode == "off" or not user.is_authenticated or not user.is_staff:
        return None
    if user.is_verified():  # type: ignore[attr-defined]  # django-otp's middleware has added it
        return None
    if request.path in (reverse(VERIFY), reverse("admin:logout")):
        return None
    if factor_of(user.pk) is not None:
        return VERIFY
    return SETUP if mode == "required" and request.path != reverse(SETUP) else None
