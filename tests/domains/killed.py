"""What a process does that is killed (tests/killed_process.py)."""

from __future__ import annotations

from domains.models import CustomDomain, TargetKind
from domains.services import Target, domain_connect, domain_disconnect
from pages.models import Page
from pages.services import page_delete, page_disable


def connect() -> None:
    page = Page.objects.get(slug="site")
    target = Target(TargetKind.PAGE, page.pk, page.account)
    domain_connect(target=target, name="example.com", include_www=True, actor="t")


def disconnect() -> None:
    domain_disconnect(domain=CustomDomain.objects.get(), actor="t")


def disable() -> None:
    page_disable(page=Page.objects.get(slug="site"), actor="t")


def delete() -> None:
    page_delete(page=Page.objects.get(slug="site"), actor="t")
