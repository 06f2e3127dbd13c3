"""The store of the settings: a local disk, or S3."""

from __future__ import annotations

from django.conf import settings

from cdn.storage.interface import Store


def store_is_remote() -> bool:
    """Return whether a call of the store may take as long as a network lets it."""
    return bool(settings.ENV.cdn_s3_bucket)


def store_file() -> Store:
    """Return the store of the settings."""
    if store_is_remote():
        from cdn.storage.s3 import s3_store

        return s3_store()
    from cdn.storage.local import local_store

    return local_store()
