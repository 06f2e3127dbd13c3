"""Prices in credits. A rate is valid from `effective_from` until the next rate of its unit."""

from __future__ import annotations

from decimal import Decimal

from django.core.validators import MinValueValidator
from django.db import models
from django.utils import timezone


class Unit(models.TextChoices):
    """What is charged for. A GB is 1e9 bytes of disk, network or CDN, and 1024 MiB of memory."""

    VCPU_HOUR = "vcpu_hour", "an hour of one CPU's time"
    GB_HOUR = "gb_hour", "a GB of memory for an hour"
    DISK_GB = "disk_gb", "a GB read from or written to disk"
    NETWORK_GB = "network_gb", "a GB received or sent"
    ASSIST_CALL = "assist_call", "a call of the code assistance API"
    CDN_GB = "cdn_gb", "a GB published"


class Rate(models.Model):
    """The price of one unit, in credits. Past rates are never changed, so that every charge stays reproducible."""

    unit = models.CharField(max_length=16, choices=Unit.choices)
    credits = models.DecimalField(max_digits=18, decimal_places=8, validators=[MinValueValidator(Decimal(0))])
    effective_from = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["unit", "-effective_from"]
        constraints = [
            models.UniqueConstraint(fields=["unit", "effective_from"], name="one_rate_at_a_time"),
            models.CheckConstraint(condition=models.Q(credits__gte=0), name="rate_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.credits.normalize():f} for {self.get_unit_display()}"
