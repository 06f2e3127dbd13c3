"""Slugs of pages: labels of host names. Each belongs to one page of all accounts."""

from __future__ import annotations

import re

from django.utils.text import slugify

from common.ids import random_suffix
from edge.addresses import is_port_label
from pages.models import SLUG_LENGTH, Page

MIN_LENGTH = 3
RULE = (
    f"{MIN_LENGTH} to {SLUG_LENGTH} lower-case letters, digits and single hyphens, neither beginning nor ending with a "
    "hyphen; some names are reserved"
)
# No `--`: `<slug>--r<n>` is a release's own name, and `xn--` begins an internationalized one.
_VALID = re.compile(rf"(?=.{{{MIN_LENGTH},{SLUG_LENGTH}}}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
# Names that make users take a site for the platform's own, or that clients look up by themselves.
RESERVED = frozenset(
    {
        "abuse", "account", "accounts", "admin", "api", "app", "apps", "assets", "auth", "autoconfig",
        "autodiscover", "billing", "cdn", "console", "dashboard", "dns", "docs", "edge", "email", "ftp", "help",
        "host", "hostmaster", "imap", "internal", "isatap", "localhost", "login", "logout", "mail", "noc",
        "notifications", "ns1", "ns2", "ns3", "page", "pages", "platform", "pop", "pop3", "postmaster", "preview",
        "root", "sandbox", "sandboxes", "security", "signin", "signup", "smtp", "ssh", "ssl", "static", "status",
        "support", "sysadmin", "test", "usenet", "webmaster", "workspace", "workspaces", "wpad", "www",
    }
)  # fmt: skip
# The first label of a sandbox's address by host (edge.addresses).
_SANDBOX = "sbx-"
_SUFFIX = 6


def is_slug(text: str) -> bool:
    """Return whether a caller may choose this slug."""
    if _VALID.fullmatch(text) is None or text in RESERVED or text.startswith(_SANDBOX):
        return False
    return not is_port_label(text)


def free_slug(name: str) -> str:
    """Return a slug made from a name, with a short suffix if it is taken or not valid.

    Another page may take it first.
    """
    base = re.sub("-+", "-", slugify(name.replace("_", "-")))[: SLUG_LENGTH - _SUFFIX - 1].strip("-") or "page"
    if is_slug(base) and not is_taken(base):
        return base
    while True:
        candidate = f"{base}-{random_suffix(_SUFFIX)}"
        if not is_slug(candidate):
            base = "page"
        elif not is_taken(candidate):
            return candidate


def is_taken(slug: str) -> bool:
    return Page.objects.filter(slug=slug).exists()
