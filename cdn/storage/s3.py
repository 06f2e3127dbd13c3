"""Store in a bucket of S3, or of any service that speaks its protocol."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, cast

from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.conf import settings
from django.core.files import File
from storages.backends.s3 import S3Storage

from cdn.storage.errors import StorageUnavailable
from cdn.storage.interface import StoredBytes
from cdn.storage.keys import checked_key, file_folder

PIECE = 8 << 20
_CONNECT_SECONDS, _READ_SECONDS, _ATTEMPTS = 5, 60, 4
# Threads for one file: two pieces are in memory.
_THREADS = 2
_DELETED_AT_ONCE = 1000


@lru_cache(maxsize=1)
def s3_store() -> S3Store:
    """Return the store of the settings."""
    env = settings.ENV
    return S3Store(
        bucket_name=env.cdn_s3_bucket,
        endpoint_url=env.cdn_s3_endpoint,
        region_name=env.cdn_s3_region,
        access_key=env.cdn_s3_access_key or None,
        secret_key=env.cdn_s3_secret_key or None,
        location=env.cdn_s3_prefix,
        client_config=Config(
            s3={"addressing_style": env.cdn_s3_addressing},
            signature_version="s3v4",
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"max_attempts": _ATTEMPTS, "mode": "standard"},
            # Many services do not know the newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


class S3Store:
    """Store in a bucket. Files above 8 MiB are sent in pieces of 8 MiB. Safe for any number of processes and
    threads.
    """

    def __init__(self, **options: Any) -> None:
        transfer = TransferConfig(multipart_threshold=PIECE, multipart_chunksize=PIECE, max_concurrency=_THREADS)
        self._files = S3Storage(transfer_config=transfer, gzip=False, file_overwrite=True, **options)
        self._prefix = f"{self._files.location}/" if self._files.location else ""

    def save(self, path: Path, key: str) -> None:
        """Store a file. If this fails the pieces are aborted; those of a process that died are found by their age."""
        checked_key(key)
        with _store_errors(), path.open("rb") as file:
            self._files.save(key, _Content(file, key))

    def open_local(self, key: str) -> BinaryIO:
        """Return a temporary copy, which is gone when it is closed."""
        checked_key(key)
        copy = cast(BinaryIO, tempfile.TemporaryFile(dir=settings.STATE))  # noqa: SIM115 - the caller's
        with _store_errors():
            self._client.download_fileobj(self._bucket, self._prefix + key, copy)
        copy.seek(0)
        return copy

    def remove(self, key: str) -> None:
        checked_key(key)
        with _store_errors():
            self._files.delete(key)

    def remove_all(self, file_id: str) -> None:
        with _store_errors():
            names = [row["Key"] for row in self._rows(f"{file_folder(file_id)}/")]
            for start in range(0, len(names), _DELETED_AT_ONCE):
                some = [{"Key": name} for name in names[start : start + _DELETED_AT_ONCE]]
                answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": some, "Quiet": True})
                if answer.get("Errors"):
                    raise StorageUnavailable("The store did not remove a file.")

    def list_files(self) -> Iterator[StoredBytes]:
        now = datetime.now(UTC)
        with _store_errors():
            for row in self._rows("files/"):
                key = row["Key"].removeprefix(self._prefix)
                try:
                    file_id, _ = checked_key(key)
                except ValueError:
                    continue
                yield StoredBytes(file_id, key, row["Size"], max(0.0, (now - row["LastModified"]).total_seconds()))

    def abort_unfinished(self, grace_seconds: float) -> int:
        """Abort uploads in pieces that were never completed: they cost money, and no listing of files shows them."""
        now, count = datetime.now(UTC), 0
        with _store_errors():
            pages = self._client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self._bucket, Prefix=f"{self._prefix}files/"):
                for row in page.get("Uploads", ()):
                    if (now - row["Initiated"]).total_seconds() >= grace_seconds:
                        self._client.abort_multipart_upload(
                            Bucket=self._bucket, Key=row["Key"], UploadId=row["UploadId"]
                        )
                        count += 1
        return count

    def signed_url(self, key: str, seconds: int, method: str = "GET") -> str:
        checked_key(key)
        return str(self._files.url(key, expire=seconds, http_method=method))

    def problem(self) -> str:
        try:
            self._client.list_objects_v2(Bucket=self._bucket, Prefix=f"{self._prefix}files/", MaxKeys=1)
        except (BotoCoreError, ClientError) as error:
            return f"the bucket {self._bucket} cannot be read: {error}"
        return ""

    @property
    def _bucket(self) -> str:
        return str(self._files.bucket_name)

    @property
    def _client(self) -> Any:
        return self._files.connection.meta.client

    def _rows(self, folder: str) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + folder):
            yield from page.get("Contents", ())


class _Content(File):  # type: ignore[type-arg]  # Django has none at run time
    """Content without a type of its own. Only the edge says the type, by the path of the delivery."""

    content_type = "application/octet-stream"


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 404:
            raise FileNotFoundError(str(error)) from error
        raise StorageUnavailable("The store of files does not answer; try again later.") from error
    except (BotoCoreError, Boto3Error) as error:
        raise StorageUnavailable("The store of files does not answer; try again later.") from error
