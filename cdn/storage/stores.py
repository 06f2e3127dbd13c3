"""The store of the settings: a local disk, or S3."""

from __future__ import annotations

from django.conf import settings

from cdn.storage.interface import Store


def file_store() -> Store:
    """The store of the settings."""
    if settings.ENV.cdn_s3_bucket:
        from cdn.storage.s3 import s3_store

        return s3_store()
    from cdn.storage.local import local_store

    return local_store()
