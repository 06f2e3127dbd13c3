"""The pages of the second factor. Only these show a secret or recovery codes, once, to their user."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import django_otp
import qrcode
from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from qrcode.image.svg import SvgPathImage
from unfold.widgets import UnfoldAdminTextInputWidget

from common.errors import DomainError
from staff.audit import StaffMember
from staff.models import Authenticator
from staff.second_factor import services
from staff.second_factor.middleware import SETUP, VERIFY

ISSUER = "Workspaces"
# In the session that has begun to set one up: the key of the authenticator.
BEGUN = "second_factor_begun"


class CodeForm(forms.Form):
    """Six digits, or a recovery code. `refusal`: why the code was not accepted."""

    refusal: DomainError | None = None
    code = forms.CharField(
        max_length=32,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "one-time-code", "autofocus": True}),
        help_text="Six digits from your authenticator app, or a recovery code.",
    )


def verify_page(request: HttpRequest) -> HttpResponse:
    """Ask for the code, after the password. `next`: where to go then."""
    _require_on()
    if services.factor_of(request.user.pk or 0) is None:
        return HttpResponseRedirect(reverse("admin:index"))
    form = CodeForm(request.POST if request.method == "POST" else None)
    if _called(request, form, services.code_check):
        return HttpResponseRedirect(_next(request))
    return _page(request, "admin/staff/second_factor.html", form, {"title": "Second factor", "next": _next(request)})


def setup_page(request: HttpRequest) -> HttpResponse:
    """Return the user's own second factor: set up, or renewed and removed if there is one."""
    _require_on()
    form = CodeForm(request.POST if request.method == "POST" else None)
    if services.factor_of(request.user.pk or 0) is not None:
        return _manage(request, form)
    begun = request.session.get(BEGUN)
    if begun and (codes := _called(request, form, partial(services.factor_confirm, begun=begun))):
        return _codes(request, codes)
    device = services.factor_begin(request.user.pk or 0, begun)
    request.session[BEGUN] = device.pk
    shown = {"secret": device.secret, "qr": _qr(request, device), "title": "Set up a second factor"}
    return _page(request, "admin/staff/second_factor_setup.html", form, shown)


def _manage(request: HttpRequest, form: CodeForm) -> HttpResponse:
    if request.POST.get("what") == "remove":
        if _called(request, form, services.factor_remove):
            messages.success(request, "Your second factor is removed.")
            return HttpResponseRedirect(reverse(SETUP))
    elif codes := _called(request, form, services.recovery_codes_renew):
        return _codes(request, codes)
    return _page(request, "admin/staff/second_factor_manage.html", form, {"title": "Second factor"})


def _called(request: HttpRequest, form: CodeForm, service: Callable[[StaffMember, str], Any]) -> Any:
    """Return the service's result for a right code; None if it refused, or no form was sent.

    The session is a verified one then, under a new key.
    """
    if not form.is_valid():
        return None
    try:
        returned = service(StaffMember.of(request), form.cleaned_data["code"])
    except DomainError as exc:
        form.add_error("code", exc.message)
        form.refusal = exc
        return None
    request.session.cycle_key()
    device = services.factor_of(request.user.pk or 0)
    if device is not None:
        django_otp.login(request, device)
    return returned


def _codes(request: HttpRequest, codes: list[str]) -> HttpResponse:
    shown = {"codes": codes, "title": "Recovery codes"}
    return _page(request, "admin/staff/recovery_codes.html", None, shown)


def _page(request: HttpRequest, template: str, form: CodeForm | None, shown: dict[str, Any]) -> HttpResponse:
    """Return a page without the navigation of the admin, which an unverified session need not see."""
    context = {"site_title": admin.site.site_title, "site_header": admin.site.site_header, "form": form, **shown}
    refusal = form.refusal if form is not None else None
    page = TemplateResponse(request, template, {**context, "verify_url": reverse(VERIFY)})
    if refusal is not None:
        page.status_code = refusal.status
        for header, value in refusal.headers.items():
            page[header] = value
    return page


def _qr(request: HttpRequest, device: Authenticator) -> str:
    """Return an SVG to be put into the page: the address as authenticator apps read it."""
    label = quote(f"{ISSUER}:{request.user.get_username()}")
    query = urlencode({"secret": device.secret, "issuer": ISSUER, "digits": services.DIGITS})
    made = qrcode.make(f"otpauth://totp/{label}?{query}", image_factory=SvgPathImage, box_size=10)
    text: str = made.to_string(encoding="unicode")
    return text


def _next(request: HttpRequest) -> str:
    """Return a page of this admin."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    local = url_has_allowed_host_and_scheme(wanted, allowed_hosts=None) and wanted.startswith(reverse("admin:index"))
    return wanted if local else reverse("admin:index")


def _require_on() -> None:
    if settings.ENV.admin_second_factor == "off":
        raise Http404
