"""Files whose bytes have all arrived: the worker `media` processes them next."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from cdn import hooks
from cdn.models import File, Permit
from cdn.pools import Change, change_pools
from cdn.services.rows import owner_of, write_file
from cdn.states import FileStatus, PermitState

EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def write_received(file: File, size: int, sha256: str) -> None:
    """Write the row of a file whose permit takes no bytes any more, in the transaction that ended that.

    The account is locked.
    """
    deadline = timezone.now() + timedelta(seconds=settings.ENV.cdn_processing_seconds)
    write_file(file, status=FileStatus.PROCESSING, size=size, sha256=sha256, deadline_at=deadline)
    change_pools(owner_of(file), Change(open_permits=-1))
    transaction.on_commit(lambda: hooks.file_received(file.pk), robust=True)


def write_empty(file: File, permit: Permit) -> None:
    """Complete a file of no bytes, in the transaction that makes its permit: a client that sends parts has none to
    send.
    """
    Permit.objects.filter(pk=permit.pk, state=PermitState.OPEN).update(state=PermitState.RECEIVED)
    permit.state = PermitState.RECEIVED
    write_received(file, 0, EMPTY_SHA256)
