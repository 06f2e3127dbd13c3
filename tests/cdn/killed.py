"""What the tests of killed processes run in a process of its own: on the first account, found by the rows."""

from __future__ import annotations

from django.db.models import Q

from accounts.models import Account
from cdn.models import File
from cdn.services import files, processing, sweeps, uploads
from cdn.services.growth import permit_grow
from namespaces.models import Namespace
from tests.cdn.rows import SHA, facts_of, make_permit, variant_facts

TOKEN = ""


def permit() -> None:
    """In the default namespace."""
    account = Account.objects.get()
    make_permit(account, Namespace.objects.get(account=account, is_default=True))


def complete() -> None:
    """The upload of TOKEN."""
    grant = uploads.upload_begin(TOKEN, length=None, offset=None, owner="killed")
    uploads.upload_complete(grant, grant.size, SHA)


def grow() -> None:
    """The permit of an upload by TOKEN, to ten times its size and a step."""
    grant = uploads.upload_begin(TOKEN, length=None, offset=None, owner="killed", once=True)
    permit_grow(grant, 10 * grant.size)


def publish() -> None:
    """The file that is processed."""
    file = File.objects.get(status="processing")
    claim = processing.processing_claim(file.pk)
    assert claim is not None
    processing.processing_publish(claim, facts_of(file), [variant_facts("thumb", 7)])


def purge() -> None:
    """All of the trash."""
    files.trash_purge(account=Account.objects.get(), within=Q(), actor="killed")


def trash() -> None:
    """The active file."""
    files.file_trash(file=File.objects.get(status="active"), actor="killed")


def expire() -> None:
    """What did not end in time."""
    sweeps.permits_expire()
