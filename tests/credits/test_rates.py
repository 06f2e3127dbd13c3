"""Prices: rows that staff edit, versioned by time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from common.errors import Conflict, ValidationError
from credits.models import MAX_PRICE, Rate, Unit
from credits.services import Rates, Units, rate_delete, rate_save
from tests.staff.pages import confirm, shown

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("db")]

BEGIN = datetime(2000, 1, 1, tzinfo=UTC)
SOME = Units(
    cpu_time_minutes=Decimal(120), memory_gb_minutes=Decimal(60), disk_io_gb=Decimal(3), network_gb=Decimal("0.5")
)


def test_every_unit_has_a_price_from_the_beginning() -> None:
    assert set(Rate.objects.values_list("unit", flat=True)) == set(Unit.values)


def test_a_price_is_the_sum_over_the_units() -> None:
    for unit, credits in ((Unit.VCPU_HOUR, 10), (Unit.GB_HOUR, 5), (Unit.DISK_GB, 2), (Unit.NETWORK_GB, 4)):
        Rate.objects.create(unit=unit, credits=credits, effective_from=BEGIN + timedelta(days=1))
    assert Rates.load().price_of(SOME, timezone.now()) == 20 + 5 + 6 + 2
    assert Rates.load().price_of(Units(), timezone.now()) == 0


def test_the_rate_that_held_at_that_moment_counts() -> None:
    change = timezone.now()
    Rate.objects.create(unit=Unit.VCPU_HOUR, credits=10, effective_from=change)
    hour = Units(cpu_time_minutes=Decimal(60))
    assert Rates.load().price_of(hour, change - timedelta(microseconds=1)) == 1
    assert Rates.load().price_of(hour, change) == 10
    assert Rates.load().price_of(hour, BEGIN - timedelta(days=1)) == 0
    assert Rates.load().changes(change - timedelta(days=1), change + timedelta(days=1)) == [change]


def test_many_small_prices_add_up_to_the_whole() -> None:
    second = Units(cpu_time_minutes=Decimal(1) / 60)
    assert abs(sum(Rates.load().price_of(second, timezone.now()) for _ in range(100)) - Decimal(100) / 3600) < Decimal(
        "0.00001"
    )


def test_no_rate_is_negative_and_none_holds_twice_at_once() -> None:
    for wrong in ({"credits": -1, "effective_from": timezone.now()}, {"credits": 1, "effective_from": BEGIN}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Rate.objects.create(unit=Unit.VCPU_HOUR, **wrong)


@pytest.mark.parametrize("ahead", [-86400, 0, 59])
def test_a_new_price_begins_in_a_minute_at_the_earliest(ahead: int) -> None:
    """What has been charged keeps the price of its time."""
    count, begin = Rate.objects.count(), timezone.now() + timedelta(seconds=ahead)
    with pytest.raises(Conflict):
        rate_save(Rate(unit=Unit.VCPU_HOUR, credits=7, effective_from=begin))
    assert Rate.objects.count() == count
    later = timezone.now() + timedelta(hours=1)
    assert rate_save(Rate(unit=Unit.VCPU_HOUR, credits=8, effective_from=later)).effective_from == later


def test_a_price_that_would_fill_every_balance_is_refused(staff: Client) -> None:
    later, count = timezone.now() + timedelta(days=9), Rate.objects.count()
    with pytest.raises(ValidationError):
        rate_save(Rate(unit=Unit.VCPU_HOUR, credits=MAX_PRICE + 1, effective_from=later))
    form = {"unit": "cdn_gb", "credits": "1001", "effective_from_0": later.date(), "effective_from_1": "12:00:00"}
    form["reason"] = "why"
    shown = staff.post("/admin/credits/rate/add/", form)
    assert (shown.status_code, Rate.objects.count()) == (200, count)
    assert b"less than or equal to 1000" in shown.content


def test_a_price_that_begins_within_a_minute_stays(db: None) -> None:
    soon = Rate.objects.create(unit=Unit.VCPU_HOUR, credits=7, effective_from=timezone.now() + timedelta(seconds=30))
    for change in (rate_save, rate_delete):
        with pytest.raises(Conflict):
            change(soon)
    assert Rate.objects.get(pk=soon.pk).credits == 7


def test_staff_add_prices_and_change_only_those_to_come(staff: Client) -> None:
    past = Rate.objects.get(unit=Unit.CDN_GB)
    future = Rate.objects.create(unit=Unit.CDN_GB, credits=2, effective_from=timezone.now() + timedelta(days=9))
    assert staff.get("/admin/credits/rate/").status_code == 200
    sent = {"unit": "cdn_gb", "credits": "7", "effective_from_0": "2999-01-01", "effective_from_1": "00:00:00"}
    assert staff.post("/admin/credits/rate/add/", sent).status_code == 200  # without a reason
    sent["reason"] = "why"
    assert staff.post("/admin/credits/rate/add/", sent).status_code == 302
    assert Rate.objects.filter(credits=7).exists()
    sent["effective_from_0"] = "2998-01-01"
    assert staff.post(f"/admin/credits/rate/{past.pk}/change/", sent).status_code == 403
    assert "is valid, or will be" in shown(confirm(staff, "credits/rate", "remove", past.pk, reason="why"))[0]
    assert staff.post(f"/admin/credits/rate/{future.pk}/change/", sent).status_code == 302
    past.refresh_from_db()
    assert past.credits != 7
    for begin in (timezone.now() - timedelta(days=1), timezone.now()):
        sent |= {"credits": "9", "effective_from_0": f"{begin:%Y-%m-%d}", "effective_from_1": f"{begin:%H:%M:%S}"}
        for path in ("add", f"{future.pk}/change"):
            refused = staff.post(f"/admin/credits/rate/{path}/", sent).content
            assert b"at the earliest" in refused
            assert b'value="9"' in refused, "what was typed is kept"
    assert not Rate.objects.filter(credits=9).exists()
