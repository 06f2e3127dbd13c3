"""First delivery of a file: the check of its owner's credits, and the link by which the edge delivers it from
then on.
"""

from __future__ import annotations

from django.conf import settings
from django.db import transaction

from accounts.services import account_lock
from cdn.delivery.addresses import Address, file_path, variant_path
from cdn.delivery.links import link_make
from cdn.models import File
from cdn.states import FileStatus
from cdn.storage.keys import original_key, variant_key
from cdn.storage.local import local_store
from credits.enforcement import require_credits
from credits.models import Service
from credits.refusals import refusals_announced
from namespaces.models import Namespace


@refusals_announced()
def file_deliver(address: Address) -> str:
    """Return the store's key for an address, with its link made; empty if nothing is delivered there.

    Raise QuotaExceeded if the file was never delivered before and the owner's credits are used up, StorageUnavailable,
    OSError.
    """
    # The first look is without a lock: anybody may ask for addresses that no file has.
    file = _active(address.file_id)
    key = _key(file, address)
    if file is None or not key or (settings.ENV.cdn_s3_bucket and file.delivered):
        return key
    with transaction.atomic():
        if not account_lock(file.account).is_active:
            return ""
        # Withdrawal changes the row first and removes links before its commit: it waits for this, or is seen here.
        file = _active(address.file_id, lock=True)
        key = _key(file, address)
        if file is None or not key:
            return ""
        if not file.delivered:
            require_credits(_payer(file), Service.CDN)
            File.objects.filter(pk=file.pk, status=FileStatus.ACTIVE).update(delivered=True)
        if not settings.ENV.cdn_s3_bucket:
            link_make(address, local_store().path(key))
    return key


def _active(file_id: str, *, lock: bool = False) -> File | None:
    rows = File.objects.select_for_update(of=("self",)) if lock else File.objects
    return rows.filter(pk=file_id, status=FileStatus.ACTIVE, purge=False, account__is_active=True).first()


def _key(file: File | None, address: Address) -> str:
    """Return the key; empty if the address is not exactly one of this file."""
    if file is None:
        return ""
    wanted = f"{address.kind}/{address.file_id}/{address.name}"
    if not address.variant:
        return original_key(file.pk, file.sha256) if file_path(file) == wanted else ""
    variant = file.variants.filter(name=address.variant).first()
    if variant is None or variant_path(variant) != wanted:
        return ""
    return variant_key(file.pk, variant.index, variant.sha256)


def _payer(file: File) -> Namespace:
    """Return the payer. The account's default namespace pays for files without a namespace, as for their permits."""
    return file.namespace or Namespace.objects.get(account_id=file.account_id, is_default=True)
