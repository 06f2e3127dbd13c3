"""Which names may be custom domains."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

import idna
from django.conf import settings
from publicsuffixlist import PublicSuffixList

from domains.models import NAME_LENGTH, PROOF_HOST, WWW
from edge.addresses import cdn_address, page_addresses, public_address, runtime_address, sandbox_address

# No top-level domain has digits, and a name that ends in a number is an IPv4 address for browsers.
_TOP = re.compile(r"[a-z]{2,63}|xn--[a-z0-9-]+")
# The longest name before which other labels can be put.
LONGEST = NAME_LENGTH - max(len(PROOF_HOST), len(WWW))
# Names that no public resolver answers for (RFC 6761, 6762, 7686, 9476, ICANN's `internal`).
_NEVER_PUBLIC = frozenset({"alt", "arpa", "internal", "invalid", "local", "localhost", "onion"})


class NameRefused(ValueError):
    """The message is a sentence for the user."""


def custom_name(text: str) -> str:
    """Return the name as ASCII in lower case (IDNA 2008), without a dot at its end. Raise NameRefused."""
    name = _as_ascii(text.strip().removesuffix("."))
    if not _TOP.fullmatch(name.rpartition(".")[2]):
        raise NameRefused("Give a domain name such as www.example.org, not an address.")
    if len(name) > LONGEST:
        raise NameRefused(f"The name is longer than {LONGEST} characters.")
    if name.rpartition(".")[2] in _NEVER_PUBLIC or _suffixes().is_public(name):
        raise NameRefused(f"{name} is not a domain that anybody can register.")
    if is_of_platform(name):
        raise NameRefused(f"{name} is a name of this platform.")
    return name


def _as_ascii(text: str) -> str:
    if _is_address(text):
        raise NameRefused("Give a domain name, not an address.")
    if "*" in text:
        raise NameRefused("A custom domain is one name; wildcards are not possible.")
    if len(text) > NAME_LENGTH:
        raise NameRefused(f"The name is longer than {NAME_LENGTH} characters.")
    try:
        return idna.encode(text, uts46=True, std3_rules=True).decode()
    except UnicodeError as error:  # also idna.IDNAError
        raise NameRefused(f"This is not a domain name: {error}.") from error


def _is_address(text: str) -> bool:
    try:
        ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    """With the names of hosting services (`github.io`); the list is part of the package."""
    return PublicSuffixList()


def is_of_platform(name: str) -> bool:
    """Return whether a name is one of the platform's own or lies below one."""
    return any(name == own or name.endswith(f".{own}") for own in _own_names())


def _own_names() -> list[str]:
    env = settings.ENV
    suffixes = [public_address(env.public_url).suffix, sandbox_address(env.sandbox_url).suffix]
    hosts = [
        urlsplit(settings.BASE_URL).hostname,
        env.edge_host,
        cdn_address(env.cdn_url).host,
        runtime_address(env.runtime_url).host,
        *settings.ALLOWED_HOSTS,
        *page_addresses(env.pages_url),
    ]
    found = [name.strip(".").lower() for name in (*suffixes, *hosts) if name]
    return [name for name in found if name and name != "*"]
