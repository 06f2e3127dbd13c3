"""Reading custom domains."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import OuterRef, Subquery

from certificates.selectors import SslState, certificate_states
from domains.errors import NotConnected
from domains.models import CustomDomain, DomainName, TargetKind
from edge.domain_files import is_name

_NO_CERTIFICATE = SslState("none", None, "")
# The first of these states that any of several names has is shown.
_WORST_FIRST = ("failed", "expired", "pending", "none", "active")


def target_domain(kind: TargetKind, target_id: str) -> CustomDomain | None:
    return CustomDomain.objects.filter(target_kind=kind, target_id=target_id).first()


def get_target_domain(kind: TargetKind, target_id: str) -> CustomDomain:
    """Raise NotConnected."""
    found = target_domain(kind, target_id)
    if found is None:
        raise NotConnected
    return found


def domain_name_of(kind: TargetKind) -> Subquery:
    """Return a subquery that annotates rows of a kind of target with the name of their domain."""
    return Subquery(CustomDomain.objects.filter(target_kind=kind, target_id=OuterRef("pk")).values("name")[:1])


def port_of_name(name: str) -> tuple[str, int] | None:
    """Return the workspace and the port that a name leads to; None if it leads to none, or to another name."""
    if not is_name(name):
        return None
    rows = CustomDomain.objects.filter(held=name, name=name, target_kind=TargetKind.WORKSPACE)
    found = rows.values_list("target_id", "port").first()
    # A workspace's domain has a port; its constraint says so.
    return (found[0], found[1] or 0) if found else None


def domain_url(domain: CustomDomain, ssl: SslState) -> str:
    """Return the URL at which the domain is served now."""
    base = urlsplit(settings.BASE_URL)
    if settings.ENV.behind_proxy:
        return f"{base.scheme}://{domain.name}"
    if ssl.status == "active":
        return f"https://{domain.name}"
    port = f":{base.port}" if base.scheme == "http" and base.port else ""
    return f"http://{domain.name}{port}"


def ssl_state(domain: CustomDomain) -> SslState:
    """Return the state over all names that the domain has; `none` while another claim has them."""
    held = list(DomainName.objects.filter(domain=domain).values_list("name", flat=True))
    states = certificate_states(held) if held else {}
    found = [states.get(name, _NO_CERTIFICATE) for name in held] or [_NO_CERTIFICATE]
    worst = min(found, key=lambda state: _WORST_FIRST.index(state.status))
    return SslState(worst.status, _first_end(found), worst.error)


def _first_end(states: list[SslState]) -> datetime | None:
    ends = [state.expires_at for state in states if state.expires_at is not None]
    return min(ends) if ends else None
