"""Up to which metering record credits were charged."""

from __future__ import annotations

from django.db import models


class ChargePosition(models.Model):
    """One row. Records up to `record_id` are charged, in the transaction that wrote it; those up to `first_record_id`
    were made before charging began and never are.
    """

    first_record_id = models.BigIntegerField(default=0)
    record_id = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"up to {self.record_id}"
