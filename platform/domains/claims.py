"""Holders of names, decided in the caller's transaction, which has called `lock_claims`.

A proven claim has its names. It takes them from an unproven one, and from a proven one whose TXT record is not there
any more; never from one whose record stands beside its own. An unproven claim has a name only while no one else does.
When a claim ends, its names go to the oldest other one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from django.conf import settings
from django.db import connection
from django.db.models import Q
from django.utils import timezone

from certificates.services import certificate_remove, certificate_request
from domains import errors
from domains.models import WWW, CustomDomain, DomainName

# An advisory lock of the database.
_CLAIMS = 5_611_402_983_117_260_417


class ProofOutdated(Exception):
    """The name was proven by another target after the DNS was asked: what it said then does not count."""


def lock_claims() -> None:
    """One transaction at a time changes claims and who has names, until its end; take it after account and target.

    Locks of rows alone end in deadlocks: which other claims and names a change concerns is known only once it has read
    some of them.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_CLAIMS])


def held_names(domain: CustomDomain) -> list[str]:
    return sorted(DomainName.objects.filter(domain=domain).values_list("name", flat=True))


def claim_names(domain: CustomDomain, proofs: Collection[str]) -> list[CustomDomain]:
    """Give the domain its names, as far as it may have them. `proofs`: the ids in the TXT records of its name.

    Return the claims that have lost their domain to it, which are deleted. Raise DomainTaken, ProofOutdated, and
    IntegrityError if another process makes the row of a name.
    """
    return [found for name in sorted(domain.names) if (found := _claim(domain, name, proofs)) is not None]


def _claim(domain: CustomDomain, name: str, proofs: Collection[str]) -> CustomDomain | None:
    row = DomainName.objects.select_for_update(of=("self",)).filter(pk=name).first()
    if row is None:
        DomainName.objects.create(name=name, domain=domain)
        return None
    holder: CustomDomain | None = row.domain
    if holder is None or holder.pk == domain.pk:
        _give(name, domain)
        return None
    if not _may_take(domain, holder, name, proofs):
        return None
    _give(name, domain)
    if holder.name != name:
        CustomDomain.objects.filter(pk=holder.pk).update(include_www=False)
        return None
    remove_domain(holder)
    return holder


def _may_take(domain: CustomDomain, holder: CustomDomain, name: str, proofs: Collection[str]) -> bool:
    """Raise DomainTaken, ProofOutdated. False: both claims are unproven, and the first one stays."""
    if domain.proven_at is None:
        if holder.proven_at is not None:
            raise errors.DomainTaken(details={"domain": name})
        return False
    if holder.proven_at is None:
        return True
    if holder.name != name:
        # It has the name as the `www` of its own. A record of exactly this name is the closer proof.
        return domain.name == name
    if domain.name != name:
        raise errors.DomainTaken(details={"domain": name})
    # One that is later than now was stored before the clock was set back, so it is older.
    if domain.proven_at <= holder.proven_at <= timezone.now():
        raise ProofOutdated
    if holder.target_id in proofs:
        raise errors.DomainTaken(details={"domain": name})
    return True


def _give(name: str, domain: CustomDomain) -> None:
    DomainName.objects.filter(pk=name).update(domain=domain, is_stale=True)


def remove_domain(domain: CustomDomain) -> None:
    """Delete a claim; its names go to other claims, or to no one."""
    release_names(domain, held_names(domain))
    CustomDomain.objects.filter(pk=domain.pk).delete()


def release_names(domain: CustomDomain, names: Iterable[str]) -> None:
    """Give those of the names that the domain has to the next claim, or remove their certificates if there is none."""
    held = DomainName.objects.select_for_update(of=("self",)).filter(domain=domain, name__in=list(names))
    for row in held.order_by("name"):
        heir = _next_claim(row.name, domain)
        DomainName.objects.filter(pk=row.name).update(domain=heir, is_stale=True)
        if heir is None:
            certificate_remove([row.name])
        else:
            certificate_request([row.name], owner=heir.account_id)


def _next_claim(name: str, former: CustomDomain) -> CustomDomain | None:
    """Return the oldest other claim; for `www.` also one that includes it and has the name before.

    Unproven ones wait from a time at which the operator permitted them; they get nothing once that is over.
    """
    claims = Q(name=name)
    if name.startswith(WWW):
        claims |= Q(name=name.removeprefix(WWW), include_www=True, held__name=name.removeprefix(WWW))
    found = CustomDomain.objects.filter(claims).exclude(pk=former.pk)
    if settings.ENV.domain_verification:
        found = found.exclude(proven_at=None)
    return found.order_by("created_at", "pk").first()
