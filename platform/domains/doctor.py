"""Lines of `manage.py doctor` about custom domains: whether anything can lead to the edge. The command looks for a
module of this name in every app.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from django.conf import settings

from domains.check import edge_addresses
from domains.models import CustomDomain

NAME = "custom domains"
FIX = "set PLATFORM_EDGE_HOST, and a record of that name (docs/operations.md, Custom domains)"
Line = tuple[str, bool, str, str]


def doctor_lines() -> Iterator[Line]:
    """Yield lines: name, whether it is as it should be, message, fix. Asks the DNS, for some seconds. Raises
    DatabaseError.
    """
    problem = _problem()
    if not problem:
        yield NAME, True, f"are a CNAME of {settings.ENV.edge_host}", ""
    elif _is_used():
        yield NAME, False, problem, FIX
    else:
        yield NAME, True, f"off: {problem}", ""


def _problem() -> str:
    host = settings.ENV.edge_host
    if _is_address(host) or "." not in host or host.endswith(".localhost"):
        return f"PLATFORM_EDGE_HOST is {host or 'empty'}, which no domain can be a CNAME of"
    return "" if edge_addresses() else f"{host} (PLATFORM_EDGE_HOST) has no address"


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_used() -> bool:
    """Return whether the operator has opened a port for them, or an account has connected one."""
    env = settings.ENV
    return bool(env.domains_http_port or env.domains_https_port) or CustomDomain.objects.exists()
