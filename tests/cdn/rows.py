"""Files in the states that tests begin with, made by the services: permits, uploads without bytes, publication."""

from __future__ import annotations

from typing import Any

from accounts.models import Account
from cdn.facts import FileFacts, VariantFacts
from cdn.models import File
from cdn.services import processing, uploads
from cdn.services.permits import IssuedPermit, NewFile, permit_create
from namespaces.models import Namespace

SHA = "ab" * 32


def make_permit(account: Account, namespace: Namespace | None = None, *, size: int = 100, **more: Any) -> IssuedPermit:
    """A permit for a file of an unknown type, unless `more` says otherwise."""
    fields = {"filename": "a.bin", "content_type": "", **more}
    return permit_create(account=account, new=NewFile(namespace=namespace, size=size, **fields), actor="test")


def upload(issued: IssuedPermit, received: int | None = None) -> File:
    """Complete an upload, of which no bytes are stored."""
    if not issued.permit.size:
        return issued.file
    grant = uploads.upload_begin(issued.token, length=None, offset=None, owner="test")
    return uploads.upload_complete(grant, issued.permit.size if received is None else received, SHA)


def facts_of(file: File, **more: Any) -> FileFacts:
    """What the bytes turned out to be."""
    known: dict[str, Any] = {
        "kind": "other",
        "content_type": "application/octet-stream",
        "extension": "bin",
        "size": file.size,
        "sha256": SHA,
    }
    return FileFacts(**{**known, **more})


def variant_facts(name: str, size: int) -> VariantFacts:
    return VariantFacts(name, 10, 10, size, SHA, "image/webp", "webp")


def publish(file: File, *variants: VariantFacts, **facts: Any) -> File:
    """Publish what was uploaded; the file may be rejected."""
    claim = processing.processing_claim(file.pk)
    assert claim is not None
    return processing.processing_publish(claim, facts_of(file, **facts), variants)


def make_file(account: Account, namespace: Namespace | None = None, *, size: int = 100, **more: Any) -> File:
    """An active file."""
    made = publish(upload(make_permit(account, namespace, size=size, **more)))
    assert made.status == "active", made.error
    return made
