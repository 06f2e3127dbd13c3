"""The admin's login: a limit on guessing, counted before a password is hashed.

Anybody who knows a name could lock it by guessing, and from enough addresses keep the queue of password checks full. So
a browser that has logged in as a name gets a signed cookie (as OWASP's device cookies): its attempts for that name are
counted by themselves and wait in another queue. It holds until that user's password is changed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.core import signing
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.crypto import constant_time_compare, salted_hmac
from unfold.forms import AuthenticationForm

from accounts.password_hashing import password_hashing
from common.attempts import Attempt, AttemptLimits, network_of
from common.errors import RateLimited
from common.request_origin import request_origin

WINDOW_SECONDS = 300
# Attempts from several addresses together.
PER_NAME = 3
COOKIE = f"{settings.COOKIE_PREFIX}known_browser"
COOKIE_SECONDS = 90 * 24 * 3600
_SALT = "accounts.login.known-browser"


@lru_cache(maxsize=1)
def _limits() -> AttemptLimits:
    attempts = settings.ENV.login_attempts
    return AttemptLimits("login", attempts, attempts * PER_NAME, WINDOW_SECONDS)


class LoginForm(AuthenticationForm):  # type: ignore[misc]  # unfold has no types
    """A refused attempt is an error of the form with a sentence; `answer_refused_logins` gives it its status."""

    request: Any

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = self.cleaned_data
        name = data.get("username")
        if name is None or not data.get("password"):
            return data
        try:
            cleaned: dict[str, Any] = self._checked(str(name))
        except RateLimited as exc:
            self.request.login_refusal = exc
            raise forms.ValidationError(exc.message, code=exc.code) from exc
        return cleaned

    def _checked(self, name: str) -> dict[str, Any]:
        """Raise RateLimited before the password is hashed, ValidationError if it is wrong."""
        browser = _known_browser(self.request, name)
        source = f"browser-{browser}" if browser else network_of(request_origin(self.request).ip_address)
        attempt = Attempt(_limits(), source, f"{name}\0{browser}" if browser else name)
        try:
            with password_hashing(known=bool(browser)):
                cleaned: dict[str, Any] = super().clean()
        except RateLimited:
            attempt.give_back()  # nothing was checked
            raise
        attempt.give_back()
        self.request.login_user = self.get_user()
        return cleaned


def answer_refused_logins(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Return middleware of the admin: the login page of a refused attempt has status 429 and Retry-After, and a browser
    that has logged in gets its cookie.
    """

    def respond(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        refusal: RateLimited | None = getattr(request, "login_refusal", None)
        if refusal is not None:
            response.status_code = refusal.status
            for header, value in refusal.headers.items():
                response[header] = value
        if (user := getattr(request, "login_user", None)) is not None:
            _remember_browser(response, user)
        return response

    return respond


def _known_browser(request: HttpRequest, name: str) -> str:
    """Return the id of a browser that has logged in as this name, with the password that the user still has; empty if
    it has not. A query for signed cookies of this name only.
    """
    try:
        known = signing.loads(request.COOKIES.get(COOKIE, ""), salt=_SALT, max_age=COOKIE_SECONDS)
    except signing.BadSignature:
        return ""
    if known["name"] != name:
        return ""
    user = get_user_model().objects.filter(username=name).first()
    if user is None or not constant_time_compare(known.get("password", ""), _password_mark(user)):
        return ""
    return str(known["id"])


def _remember_browser(response: HttpResponseBase, user: AbstractBaseUser) -> None:
    mark = {"id": secrets.token_hex(8), "name": user.get_username(), "password": _password_mark(user)}
    response.set_cookie(
        COOKIE,
        signing.dumps(mark, salt=_SALT),
        max_age=COOKIE_SECONDS,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Strict",
    )


def _password_mark(user: AbstractBaseUser) -> str:
    """Return a mark that changes with the user's password, as Django's sessions do."""
    return salted_hmac(_SALT, user.password, algorithm="sha256").hexdigest()
