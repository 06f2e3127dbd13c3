"""The only writers of custom domains. After the commit the files follow (`publication`).

Locks are taken in one order: the account, the target's row, that of all claims. A domain is proven by its TXT record
alone; the DNS is asked before the transaction, and what changed since then is seen in it (`claims`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import IntegrityError, transaction

from accounts.models import Account
from accounts.services import account_lock
from certificates.services import certificate_renew, certificate_request
from common.errors import Conflict, NotFound
from common.request_origin import NO_ORIGIN, RequestOrigin
from domains import claims, errors, hooks, publication
from domains.models import CustomDomain, DomainName, TargetKind

if TYPE_CHECKING:
    from domains.check import DomainCheck

ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Target:
    """A page, or a workspace and one of its ports."""

    kind: TargetKind
    id: str
    account: Account
    port: int | None = None


def domain_connect(
    *, target: Target, name: str, include_www: bool = False, actor: str, origin: RequestOrigin = NO_ORIGIN
) -> CustomDomain:
    """Connect a domain (a name of `names.custom_name`) in place of the one that the target has. Idempotent.

    Raise DomainNotVerified, DomainTaken, DomainLimit, NotFound (the target is deleted), Conflict (others keep changing
    the same names); nothing has changed then.
    """
    # Not at the top: workers disconnect domains, and only the api connects them.
    from domains.check import check_domain
    from domains.serializers import check_body

    for _ in range(ATTEMPTS):
        found = check_domain(name, target.id, include_www=include_www)
        if settings.ENV.domain_verification and not found.verified:
            raise errors.DomainNotVerified(details=check_body(found))
        try:
            return _connect(target, found, include_www, actor, origin)
        except (claims.ProofOutdated, IntegrityError):
            # Somebody else has connected one of the names since the check began.
            continue
    raise Conflict("The domain is being connected elsewhere at the same time; try again.")


@transaction.atomic
def _connect(target: Target, found: DomainCheck, include_www: bool, actor: str, origin: RequestOrigin) -> CustomDomain:
    account_lock(target.account)
    _lock_target(target.kind, target.id)
    claims.lock_claims()
    former = CustomDomain.objects.filter(target_kind=target.kind, target_id=target.id).first()
    if former is None:
        _check_limit(target.account)
    domain = former or CustomDomain(account=target.account, target_kind=target.kind, target_id=target.id)
    before = [] if former is None else former.names
    domain.name, domain.include_www, domain.port = found.domain, include_www, target.port
    domain.proven_at = found.asked_at if found.ownership.ok else None
    domain.save()
    dropped = sorted(set(before) - set(domain.names))
    taken_from = claims.claim_names(domain, found.proofs)
    claims.release_names(domain, dropped)
    for loss in taken_from:
        dropped += loss.names
        _record(loss, "domain_lost", f"{found.domain} was proven by another target.", "system")
    _record(domain, "domain_connected", _detail(domain), actor, origin)
    held = claims.held_names(domain)
    certificate_request(held, owner=target.account.pk)
    publication.publish_on_commit([*held, *dropped])
    return domain


def _lock_target(kind: TargetKind, target_id: str) -> None:
    if not any(hooks.target_lock(kind, target_id)):
        raise NotFound


def _check_limit(account: Account) -> None:
    current, most = CustomDomain.objects.filter(account=account).count(), settings.ENV.domains_per_account
    if current >= most:
        raise errors.DomainLimit(details={"current": current, "max": most})


def _detail(domain: CustomDomain) -> str:
    parts = [domain.name, "with www" if domain.include_www else "", "proven" if domain.proven_at else "not proven"]
    return ", ".join([*filter(None, parts), *([f"port {domain.port}"] if domain.port else [])])


@transaction.atomic
def domain_disconnect(*, domain: CustomDomain, actor: str, origin: RequestOrigin = NO_ORIGIN) -> None:
    """Disconnect a domain and remove its certificates. Raise NotConnected if another process was first."""
    claims.lock_claims()
    stored = CustomDomain.objects.filter(pk=domain.pk).first()
    if stored is None:
        raise errors.NotConnected
    _record(stored, "domain_disconnected", stored.name, actor, origin)
    claims.remove_domain(stored)
    publication.publish_on_commit(stored.names)


@transaction.atomic
def target_removed(kind: TargetKind, target_id: str) -> None:
    """Disconnect the domain of a target that is being deleted, in the caller's transaction, which has locked the
    target: it gets no domain any more, but may lose the one that it has.
    """
    claim = CustomDomain.objects.filter(target_kind=kind, target_id=target_id)
    if not claim.exists():
        return
    claims.lock_claims()
    found = claim.first()
    if found is not None:
        claims.remove_domain(found)
        publication.publish_on_commit(found.names)


@transaction.atomic
def targets_changed(kind: TargetKind, target_ids: Collection[str]) -> None:
    """Let names follow targets that are served, or not served any more, after the caller's transaction."""
    if not CustomDomain.objects.filter(target_kind=kind, target_id__in=target_ids).exists():
        return
    claims.lock_claims()
    names = DomainName.objects.filter(domain__target_kind=kind, domain__target_id__in=target_ids)
    found = sorted(names.values_list("name", flat=True))
    DomainName.objects.filter(pk__in=found).update(is_stale=True)
    publication.publish_on_commit(found)


@transaction.atomic
def certificates_renew(*, domain: CustomDomain, actor: str, origin: RequestOrigin = NO_ORIGIN) -> None:
    """Order its certificates now. Raise what `certificate_renew` raises, and Conflict if another target has its
    names.
    """
    held = claims.held_names(domain)
    if not held:
        raise Conflict("The domain is claimed, not proven, and another target has it.")
    certificate_renew(held)
    _record(domain, "certificate_renewed", ", ".join(held), actor, origin)


def _record(domain: CustomDomain, action: str, detail: str, actor: str, origin: RequestOrigin = NO_ORIGIN) -> None:
    kind = TargetKind(domain.target_kind)
    hooks.domain_event(hooks.DomainEvent(domain.account_id, kind, domain.target_id, action, detail, actor, origin))
