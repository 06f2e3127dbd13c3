"""Hooks for the apps of the targets (docs/architecture.md, Layers). Each handler is asked about every kind of target,
and answers for its own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from common.hooks import Hook
from common.request_origin import NO_ORIGIN, RequestOrigin
from domains.models import TargetKind


@dataclass(frozen=True, slots=True)
class DomainEvent:
    """A change of a target's domain, for the audit log of the target."""

    account_id: str
    kind: TargetKind
    target_id: str
    action: str
    detail: str
    actor: str
    origin: RequestOrigin = NO_ORIGIN


# (kind, ids): those of them that are to be served now. Others keep their names, and are answered as unknown ones.
served_targets: Hook[[TargetKind, Collection[str]], set[str]] = Hook("domains.served_targets")
# (kind, id): lock the target's row to the end of the transaction; true if there is one.
target_lock: Hook[[TargetKind, str], bool] = Hook("domains.target_lock")
# An entry of the audit log, in the transaction of the change.
domain_event: Hook[[DomainEvent], None] = Hook("domains.domain_event")
