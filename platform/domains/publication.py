"""Bringing the files of the edge (`edge.domain_files`) to the rows: which name leads where.

The row decides. It is applied under its lock and the files' own, by the process that has changed it; if that dies,
`names_continue` of the worker does, and `names_reconcile` compares everything.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.db import transaction

from certificates.selectors import active_names, is_active
from common.commits import call_after_commit
from common.sweeps import rows_in_turn
from domains import hooks
from domains.models import CustomDomain, DomainName, TargetKind
from edge.domain_files import PORT, WWW, DomainFiles, is_name, link_kind, link_page

logger = logging.getLogger(__name__)

BATCH = 500
# The time of one look of the worker, which begins the next one after a few seconds.
CONTINUE_SECONDS = 20.0


def domain_files() -> DomainFiles:
    """Return the files of this instance."""
    return _files(Path(settings.STATE))


@lru_cache(maxsize=1)
def _files(state: Path) -> DomainFiles:
    return DomainFiles(state)


def publish_on_commit(names: Collection[str]) -> None:
    """Apply the rows of names once they are committed. Changes that cannot be applied then are soon applied by the
    worker.
    """
    if names:
        call_after_commit(_publish_names, tuple(names))


def _publish_names(names: Iterable[str]) -> int:
    return sum(_publish(name) for name in sorted(names))


def _publish(name: str) -> bool:
    try:
        name_publish(name)
    except OSError as exc:
        logger.error("%s does not lead to its target yet: %s", name, exc)
        return False
    return True


@transaction.atomic
def name_publish(name: str, *, even_if_fresh: bool = False) -> bool:
    """Make the file of a name as its row says; whether anything changed. Idempotent. Raise OSError."""
    row = DomainName.objects.select_for_update(of=("self",)).filter(pk=name).first()
    if row is None or not (row.is_stale or even_if_fresh):
        return False
    with domain_files().locked():
        changed = domain_files().link_set(name, _link_of(row))
    if row.domain_id is None:
        row.delete()
    else:
        DomainName.objects.filter(pk=name).update(is_stale=False)
    return changed


def _link_of(row: DomainName) -> str | None:
    return _links([row]).get(row.name)


def _links(rows: Iterable[DomainName]) -> dict[str, str]:
    """Return the link of each name, without names that are not to be served."""
    held = [(row.name, row.domain) for row in rows if row.domain is not None]
    served = {kind: _served(kind, [domain for _, domain in held]) for kind in TargetKind}
    return {
        name: _link(name, domain) for name, domain in held if domain.target_id in served[TargetKind(domain.target_kind)]
    }


def _served(kind: TargetKind, domains: list[CustomDomain]) -> set[str]:
    ids = {domain.target_id for domain in domains if domain.target_kind == kind}
    return set().union(*hooks.served_targets(kind, ids)) if ids else set()


def _link(name: str, domain: CustomDomain) -> str:
    if name != domain.name:
        return link_kind(WWW)
    return link_page(domain.target_id) if domain.target_kind == TargetKind.PAGE else link_kind(PORT)


def mark_certificate(name: str, present: bool) -> None:
    """Mark a certificate: a handler of `certificates.hooks.certificate_changed`. Idempotent. Raise OSError."""
    domain_files().set_tls(name, present=present)


def names_continue() -> int:
    """Apply the rows that a process has changed and not applied, as many as there is time for. Return how many."""
    stale = rows_in_turn(DomainName.objects.filter(is_stale=True), batch=BATCH, seconds=CONTINUE_SECONDS)
    return sum(_publish(row.name) for row in stale)


def names_reconcile() -> list[str]:
    """Compare all files with the rows, and correct the files. Return what was done, one line each. Raise OSError."""
    # Files before rows: a file is made after its row is committed, so what has no row now has none any more.
    links = domain_files().links()
    done = []
    for start in range(0, len(names := sorted(DomainName.objects.values_list("pk", flat=True))), BATCH):
        done += _reconcile(names[start : start + BATCH], links)
    done += [f"removed {name}" for name in sorted(links.keys() - set(names)) if _remove_unknown(name)]
    with domain_files().locked():
        done += [f"removed {name}" for name in domain_files().remove_rubbish()]
    done += _reconcile_marks()
    for line in done:
        logger.info("domains: %s", line)
    return done


def _reconcile_marks() -> list[str]:
    """Reconcile marks: one without a certificate would lead all visitors to a handshake that fails.

    A certificate that comes or goes at this moment has its mark changed beside this: then the next look corrects it.
    """
    files, active = domain_files(), active_names()
    differ = sorted(
        name for name in files.tls_names() ^ active if is_name(name) and is_active(name) == (name in active)
    )
    for name in differ:
        mark_certificate(name, name in active)
    return [f"corrected the mark of {name}" for name in differ]


def _reconcile(names: list[str], links: dict[str, str]) -> list[str]:
    rows = list(DomainName.objects.filter(pk__in=names).select_related("domain"))
    wanted = _links(rows)
    differ = [row.name for row in rows if wanted.get(row.name) != links.get(row.name) or row.domain_id is None]
    return [f"corrected {name}" for name in differ if name_publish(name, even_if_fresh=True)]


def _remove_unknown(name: str) -> bool:
    """Remove an unknown file. Its row may have come since: the row is read under the files' lock, before which no
    process makes the file.
    """
    with domain_files().locked():
        return not DomainName.objects.filter(pk=name).exists() and domain_files().link_set(name, None)
