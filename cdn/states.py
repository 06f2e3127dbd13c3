"""States of files and permits, and the kinds of media (specification, CDN quota fields)."""

from __future__ import annotations

from django.db import models


class Kind(models.TextChoices):
    """Kinds of files, by their bytes."""

    IMAGE = "image"
    VIDEO = "video"
    AUDIO = "audio"
    DOCUMENT = "document"
    OTHER = "other"


class FileStatus(models.TextChoices):
    """Status of a file.

    uploading -> processing             all bytes have arrived
    uploading, processing -> rejected   refused, cancelled, or out of time
    processing -> active                published
    active -> trashed                   deleted; it can be restored
    trashed -> active                   restored
    """

    UPLOADING = "uploading"
    PROCESSING = "processing"
    ACTIVE = "active"
    REJECTED = "rejected"
    TRASHED = "trashed"


class PermitState(models.TextChoices):
    """State of an upload address.

    open -> receiving           a request sends bytes: it has the lease
    receiving -> open           that request ended before the bytes did
    receiving -> receiving      its lease has expired: another request has it
    receiving -> received       all bytes have arrived
    open -> received            the file is empty: there are none to come
    open, receiving, received -> closed     published, refused, or out of time
    """

    OPEN = "open"
    RECEIVING = "receiving"
    RECEIVED = "received"
    CLOSED = "closed"


class PoolKind(models.TextChoices):
    """Owners whose bytes a pool counts. `personal`: an account's files without a namespace."""

    ACCOUNT = "account"
    NAMESPACE = "namespace"
    PERSONAL = "personal"


UNFINISHED = (FileStatus.UPLOADING, FileStatus.PROCESSING)
# A permit that takes bytes; `maxConcurrentUploads` counts them.
UPLOADABLE = (PermitState.OPEN, PermitState.RECEIVING)
