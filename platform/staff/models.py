"""The audit entries of what staff do. Written by `staff.audit` only, and never changed or deleted."""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models
from django.utils import timezone

from common.append_only import AppendOnly
from staff.factor_models import Authenticator, RecoveryCode
from staff.token_models import StaffToken

__all__ = ["AUDIT", "Authenticator", "FixedRows", "Outcome", "RecoveryCode", "StaffEntry", "StaffToken"]

AUDIT = AppendOnly(
    table="staff_staffentry",
    refusal="An audit entry of staff is never changed or deleted.",
)


class Outcome(models.TextChoices):
    """`begun`: written before a service that commits by itself; an entry with its outcome follows. One that is missing
    says that the process died in between."""

    DONE = "done"
    REFUSED = "refused"
    BEGUN = "begun"


class FixedRows(models.QuerySet["StaffEntry"]):
    """A model whose rows are only added. The database refuses the rest, too (`AUDIT`)."""

    def update(self, **kwargs: Any) -> NoReturn:
        raise TypeError(AUDIT.refusal)

    def delete(self) -> NoReturn:
        raise TypeError(AUDIT.refusal)


class StaffEntry(models.Model):
    """One thing that a member of staff did, or was refused. Without foreign keys: it outlives the user and the object.

    `object_type` as `workspaces.workspace`. `submission` is the id of the confirmation page from which it came, so that
    a page that is sent twice acts once; empty for what has none.
    """

    at = models.DateTimeField(default=timezone.now, db_index=True)
    user_id = models.PositiveBigIntegerField(null=True)
    user_name = models.CharField(max_length=150)
    ip_address = models.CharField(max_length=45, blank=True, default="")
    user_agent = models.CharField(max_length=255, blank=True, default="")
    action = models.CharField(max_length=60)
    object_type = models.CharField(max_length=80, blank=True, default="")
    object_id = models.CharField(max_length=255, blank=True, default="")
    object_label = models.CharField(max_length=200, blank=True, default="")
    account_id = models.CharField(max_length=24, blank=True, default="")
    reason = models.CharField(max_length=500, blank=True, default="")
    outcome = models.CharField(max_length=8, choices=Outcome.choices, default=Outcome.DONE)
    detail = models.CharField(max_length=500, blank=True, default="")
    submission = models.CharField(max_length=32, blank=True, default="", editable=False)

    objects = FixedRows.as_manager()

    class Meta:
        ordering = ["-at", "-id"]
        verbose_name = "audit entry"
        verbose_name_plural = "audit entries"
        # Permissions that belong to no single model.
        permissions = [
            ("open_terminal", "Can open a terminal in a customer's machine"),
            ("reset_second_factor", "Can reset the second factor of another user"),
        ]
        indexes = [
            models.Index(fields=["action", "-id"], name="staff_entry_by_action"),
            models.Index(fields=["outcome", "-id"], name="staff_entry_by_outcome"),
            models.Index(fields=["object_id", "-id"], name="staff_entry_by_object_id"),
            models.Index(fields=["object_type", "-id"], name="staff_entry_by_type"),
            models.Index(fields=["object_type", "object_id", "at"], name="staff_entry_by_object"),
            models.Index(fields=["user_name", "-id"], name="staff_entry_of_user"),
            models.Index(fields=["account_id", "at"], name="staff_entry_by_account"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["submission", "object_id"],
                condition=~models.Q(submission=""),
                name="staff_entry_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.object_label}".strip()

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise TypeError(AUDIT.refusal)
        super().save(*args, **{**kwargs, "force_insert": True})

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(AUDIT.refusal)
