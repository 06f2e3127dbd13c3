"""Audit logs of what belongs to accounts: their columns, their one writer, and their pruning."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from django.apps import apps
from django.conf import settings
from django.db import models
from django.utils import timezone

from common.request_origin import NO_ORIGIN, RequestOrigin
from common.retention import prune_rows

BATCH = 500


class AccountEvent(models.Model):
    """An entry of an audit log. Each app has a table of its own, with a column that says what the entry is about.

    `action` is a stable word for programs, `detail` a message for people, `actor` who caused it: a credential's label,
    a member of staff, or `system`. Entries outlive what they are about, so they hold its id and no foreign key. They
    are deleted with the account, and when they are older than PLATFORM_ACTIVITY_DAYS.
    """

    subject_field: ClassVar[str]  # the name of that column

    account = models.ForeignKey("accounts.Account", on_delete=models.CASCADE, db_index=False, related_name="+")
    action = models.CharField(max_length=40)
    actor = models.CharField(max_length=160, blank=True, default="")
    detail = models.CharField(max_length=500, blank=True, default="")
    ip_address = models.CharField(max_length=45, blank=True, default="")
    user_agent = models.CharField(max_length=255, blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        abstract = True
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["account", "-id"], name="%(class)s_by_account"),
            models.Index(fields=["action", "-id"], name="%(class)s_by_action"),
            models.Index(fields=["actor", "-id"], name="%(class)s_by_actor"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {getattr(self, self.subject_field)}"


Event = TypeVar("Event", bound=AccountEvent)


def audit_entry(
    model: type[Event],
    account_id: str,
    subject_id: str,
    action: str,
    detail: str = "",
    *,
    actor: str = "system",
    origin: RequestOrigin = NO_ORIGIN,
    **more: Any,
) -> Event:
    """Return an entry that is not written yet. `more`: the columns that this log alone has."""
    return model(
        account_id=account_id,
        action=action,
        actor=actor[:160],
        detail=detail[:500],
        ip_address=origin.ip_address,
        user_agent=origin.user_agent,
        **{model.subject_field: subject_id},
        **more,
    )


def record_entry(entry: Event) -> Event:
    """Write an entry in the caller's transaction, and a log line."""
    entry.save(force_insert=True)
    subject = getattr(entry, entry.subject_field) or entry.account_id
    _logger(entry).info("%s %s by %s: %s", subject, entry.action, entry.actor, entry.detail)
    return entry


def record_entries(entries: Sequence[AccountEvent]) -> None:
    """Write entries of one log, all for the same reason, in the caller's transaction, and one log line."""
    if entries:
        first = entries[0]
        type(first)._default_manager.bulk_create(entries, batch_size=BATCH)
        _logger(first).info("%d times %s by %s: %s", len(entries), first.action, first.actor, first.detail)


def _logger(entry: AccountEvent) -> logging.Logger:
    return logging.getLogger(f"{entry._meta.app_label}.activity")


def audit_models() -> Iterator[type[AccountEvent]]:
    """Yield the models of all apps that are audit logs of accounts."""
    for model in apps.get_models():
        if issubclass(model, AccountEvent):
            yield model


def prune_audit() -> int:
    """Remove entries that are older than PLATFORM_ACTIVITY_DAYS, of each log some ten thousand at most. Return how
    many.
    """
    before = timezone.now() - timedelta(days=settings.ENV.activity_days)
    return sum(prune_rows(model, "created_at", before) for model in audit_models())
