"""Delivery of what an address names: the link by which the edge finds it from then on, or its key in a store of S3."""

from __future__ import annotations

from django.conf import settings

from cdn.delivery.addresses import Address, file_path, variant_path
from cdn.delivery.links import link_make
from cdn.errors import FileNotKept
from cdn.models import File
from cdn.services.deliveries import delivery_authorized
from cdn.states import FileStatus
from cdn.storage.keys import original_key, variant_key
from cdn.storage.local import local_store


def file_deliver(address: Address) -> str:
    """The store's key. Raises FileNotKept, QuotaExceeded (never delivered before, and no credits are left), OSError."""
    if settings.ENV.cdn_s3_bucket:
        return _delivered_key(address) or _authorized_key(address)
    with delivery_authorized(address.file_id) as file:
        # Before the folder of links is made: most addresses that are asked for again are wrong ones.
        key = _key(file, address)
        link_make(address, local_store().path(key))
    return key


def _authorized_key(address: Address) -> str:
    with delivery_authorized(address.file_id) as file:
        return _key(file, address)


def _delivered_key(address: Address) -> str:
    """Without a lock: there is no link that a withdrawal could miss. Empty for a file that was never delivered."""
    rows = File.objects.filter(pk=address.file_id, status=FileStatus.ACTIVE, purge=False, delivered=True)
    file = rows.first()
    return _key(file, address) if file else ""


def _key(file: File, address: Address) -> str:
    """Raises FileNotKept where the address is not exactly one of this file."""
    wanted = f"{address.kind}/{address.file_id}/{address.name}"
    if not address.variant and file_path(file) == wanted:
        return original_key(file.pk, file.sha256)
    variant = file.variants.filter(name=address.variant).first() if address.variant else None
    if variant is None or variant_path(variant) != wanted:
        raise FileNotKept
    return variant_key(file.pk, variant.index, variant.sha256)
