"""Whether a file may be delivered, decided once by the api: from then on the edge serves it without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from cdn.errors import FileNotKept
from cdn.models import File
from cdn.states import FileStatus
from credits.enforcement import require_credits
from credits.models import Service
from namespaces.models import Namespace


@contextmanager
def delivery_authorized(file_id: str) -> Iterator[File]:
    """An active file, whose row is locked while the body makes its links: a withdrawal waits, and finds them.

    The first delivery of a file needs credits of the service `cdn`; one that was delivered before goes on without.
    Raises FileNotKept, QuotaExceeded.
    """
    with transaction.atomic():
        rows = File.objects.select_for_update(of=("self",)).select_related("namespace")
        file = rows.filter(pk=file_id, status=FileStatus.ACTIVE, purge=False).first()
        if file is None:
            raise FileNotKept
        if not file.delivered:
            require_credits(_payer(file), Service.CDN)
        yield file
        if not file.delivered:
            File.objects.filter(pk=file.pk).update(delivered=True)


def _payer(file: File) -> Namespace:
    return file.namespace or Namespace.objects.get(account_id=file.account_id, is_default=True)
