"""Devices: the only writers of their rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.utils import timezone

from accounts.models import Account
from accounts.services import account_lock
from common.errors import NotFound
from common.request_origin import NO_ORIGIN, RequestOrigin
from common.secrets_at_rest import keyed_hash
from notifications.audit import record_device
from notifications.content import compact_json
from notifications.errors import DeviceLimitExceeded
from notifications.models import Device, Provider

MOST_OF_ACCOUNT = 1000


def address_hash(address: dict[str, Any]) -> str:
    """Return the hash that names an address: the registration token, or the endpoint with its keys."""
    return keyed_hash(compact_json(sorted(address.items())).decode())


def device_register(
    *,
    account: Account,
    device_id: str,
    platform: str,
    provider: Provider,
    address: dict[str, Any],
    actor: str,
    origin: RequestOrigin = NO_ORIGIN,
) -> tuple[Device, bool]:
    """Add a device, or give one another address; whether it is new.

    An address belongs to one device of an account: if another one had it, that one is removed, as the app on it has
    chosen another id. Raise DeviceLimitExceeded, AccountGone; nothing has changed then.
    """
    values = {
        "platform": platform,
        "provider": provider,
        "address": address,
        "address_hash": address_hash(address),
        "updated_at": timezone.now(),
    }
    return _register(account, device_id, values, actor, origin)


@transaction.atomic
def _register(
    account: Account, device_id: str, values: dict[str, Any], actor: str, origin: RequestOrigin
) -> tuple[Device, bool]:
    account_lock(account)
    rows = Device.objects.filter(account=account)
    for former in rows.filter(address_hash=values["address_hash"]).exclude(device_id=device_id):
        former.delete()
        record_device(former, "replaced", f"by {device_id}", actor=actor, origin=origin)
    found = rows.filter(device_id=device_id).first()
    if found is not None:
        rows.filter(pk=found.pk).update(**values)
        record_device(found, "updated", actor=actor, origin=origin)
        return rows.get(pk=found.pk), False
    current = rows.count()
    if current >= MOST_OF_ACCOUNT:
        raise DeviceLimitExceeded(details={"current": current, "max": MOST_OF_ACCOUNT})
    made = Device.objects.create(account=account, device_id=device_id, **values)
    record_device(made, "registered", actor=actor, origin=origin)
    return made, True


@transaction.atomic
def device_delete(*, device: Device, actor: str, origin: RequestOrigin = NO_ORIGIN) -> None:
    """Remove a device. Raise NotFound (removed by another request)."""
    deleted, _ = Device.objects.filter(pk=device.pk).delete()
    if not deleted:
        raise NotFound("There is no such device.")
    record_device(device, "deleted", actor=actor, origin=origin)


@transaction.atomic
def devices_prune(devices: Iterable[Device]) -> int:
    """Remove devices whose providers know their addresses no more; those that have other addresses by now stay.

    Return how many were removed.
    """
    removed = 0
    for device in devices:
        same = Device.objects.filter(pk=device.pk, address_hash=device.address_hash)
        if same.delete()[0]:
            removed += 1
            record_device(device, "pruned", "its address is not registered any more")
    return removed
