"""Links to private ports, as far as the edge knows them: the form of their secrets, and where a visitor shows one.
Imports no Django.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_plus

PREFIX = "plk_"
# As `common.secrets_at_rest.new_secret` makes them.
SECRET = rf"{PREFIX}[A-Za-z0-9_-]{{43}}"
# The parameter of an address that is a link. It never reaches a program.
PARAMETER = "__link"
# By https the name is one that browsers take from this host alone: no page of another port can set it.
COOKIE, SECURE_COOKIE = "port_link", "__Host-port_link"
_ANY_COOKIE = rf"(?:__Host-)?{COOKIE}"
# What a Location may contain as it is. Not the backslash, which browsers read as a slash.
_SAFE = "/%[]=:;$&()+,!?*@'~"


def edge_patterns() -> dict[str, str]:
    """Return what the Caddyfile looks for, as regular expressions that Go reads, by their names in the template."""
    return {
        "link_prefix": PREFIX,
        "link_cookie": rf"(?:^|;)\s*{_ANY_COOKIE}\s*=",
        "link_cookie_pair": rf"(?:^|;)\s*{_ANY_COOKIE}\s*=[^;]*",
        # Of a program in the machine, which would take a visitor's own cookie away.
        "link_cookie_set": rf"(?i)^\s*{_ANY_COOKIE}\s*=.*",
        # Each character may be sent percent-encoded.
        "link_parameter": "(?i)" + "".join(f"(?:{char}|%{ord(char):02x})" for char in PARAMETER),
    }


def is_secret(text: str) -> bool:
    """Return whether a text has the form of a link's secret."""
    return re.fullmatch(SECRET, text) is not None


def cookie_name(*, secure: bool) -> str:
    return SECURE_COOKIE if secure else COOKIE


def cookie_secrets(header: str, *, secure: bool) -> list[str]:
    """Return the secrets of a Cookie header. By plain HTTP there may be several: pages of other ports of this domain
    can set cookies for all of it.
    """
    return re.findall(rf"(?:^|;)\s*{re.escape(cookie_name(secure=secure))}=({SECRET})\s*(?=;|$)", header)


def bearer_secret(header: str) -> str:
    """Return the secret of an Authorization header; empty if it has none, or is more than one header."""
    found = re.fullmatch(rf"(?i:bearer) +({SECRET})\s*", header)
    return found[1] if found else ""


def without_parameter(target: str) -> str:
    """Return a request's target without the link's secret, as a Location that stays on the host; everything else is as
    it was sent. The target begins with a slash, and its characters are its bytes.
    """
    path, _, query = target.partition("?")
    kept = [pair for pair in query.split("&") if unquote_plus(pair.partition("=")[0]) != PARAMETER]
    location = quote("?".join([path, "&".join(kept)] if kept else [path]).encode("latin-1"), safe=_SAFE)
    # Two slashes would begin the name of another host.
    return f"/%2F{location[2:]}" if location.startswith("//") else location
