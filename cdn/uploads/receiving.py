"""Receipt of one request's body, into the part file of its upload.

The row's offset is never ahead of the flushed bytes. Whatever ends a request (its client, the disk, its process), the
next one goes on from that offset, or begins again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from django.db import DatabaseError, InterfaceError

from cdn.errors import OffsetConflict, UploadEnded, UploadInProgress, UploadLost, UploadUnknown
from cdn.services.growth import permit_grow
from cdn.services.uploads import (
    UploadGrant,
    UploadStatus,
    lost_uploads,
    upload_account,
    upload_begin,
    upload_complete,
    upload_of_nothing,
    upload_pause,
    upload_progress,
)
from cdn.storage.errors import StorageUnavailable
from cdn.storage.parts import PartBusy, PartFile
from cdn.uploads.part_writer import PartWriter, in_upload_thread
from cdn.uploads.places import upload_place
from common.async_threads import in_pool_thread
from common.errors import PayloadTooLarge, ValidationError
from common.server_stop import cancelled_at_stop
from common.sse.watched_grants import watched_grant

logger = logging.getLogger(__name__)
T = TypeVar("T")


CHECKPOINT_SECONDS = 2.0


async def receive_body(
    body: AsyncIterator[bytes], token: str, *, length: int | None, offset: int | None, once: bool = False
) -> UploadStatus:
    """Receive a body: a whole file, or with an offset the bytes from there on. Return how far the upload is then.

    A complete file is processed next, and its row may say that it was rejected before this returns. `once`: the permit
    ends with this request, and grows with the bytes that come. Run this to its end, even if the request ends. Raise the
    errors of `upload_begin`, UploadsAtOnce, StorageUnavailable, ClientDisconnected, RequestStalled, PayloadTooLarge
    (more came than was announced; with `once`, the errors of `permit_grow`), ValidationError (an empty file).
    """
    with cancelled_at_stop():
        return await _receive(body, token, length, offset, once)


async def _receive(
    body: AsyncIterator[bytes], token: str, length: int | None, offset: int | None, once: bool
) -> UploadStatus:
    try:
        account_id = await in_pool_thread(upload_account, token)
    except UploadUnknown:
        return await _receive_nothing(body, token)
    with upload_place(account_id):
        owner = secrets.token_hex(16)
        grant = await in_pool_thread(upload_begin, token, length=length, offset=offset, owner=owner, once=once)
        return await _receive_granted(grant, body, whole=offset is None)


async def _receive_nothing(body: AsyncIterator[bytes], token: str) -> UploadStatus:
    """Receive the body of an empty file. Raise UploadUnknown, and PayloadTooLarge if the body is not empty."""
    status = await in_pool_thread(upload_of_nothing, token)
    async for piece in body:
        if piece:
            raise PayloadTooLarge("The permit is for an empty file, and bytes were sent.")
    return status


async def _receive_granted(grant: UploadGrant, body: AsyncIterator[bytes], *, whole: bool) -> UploadStatus:
    try:
        writer = await _open(grant, hashed=whole)
    except BaseException as error:
        await _pause(grant, _left_offset(grant, error))
        raise
    try:
        return await _Upload(grant, writer, whole=whole).run(body)
    finally:
        await writer.close()


async def _open(grant: UploadGrant, *, hashed: bool) -> PartWriter:
    """Return a writer of the part, cut at the grant's offset. Raise UploadInProgress, OffsetConflict,
    StorageUnavailable.
    """
    try:
        part = await in_upload_thread(PartFile.open, grant.file_id)
    except PartBusy:
        raise UploadInProgress from None
    try:
        if part.size < grant.offset:
            raise OffsetConflict(details={"offset": part.size})
        await in_upload_thread(part.cut, grant.offset)
    except BaseException:
        part.close()
        raise
    return PartWriter(part, hashed=hashed)


def _left_offset(grant: UploadGrant, error: BaseException) -> int:
    """Return the number of bytes that are there, if the part has fewer than the row says."""
    return error.details["offset"] if isinstance(error, OffsetConflict) and error.details else grant.offset


async def _pause(grant: UploadGrant, received: int) -> None:
    """Give the lease back, if the database answers: otherwise the lease runs out."""
    try:
        await in_pool_thread(upload_pause, grant, received)
    except (DatabaseError, InterfaceError) as error:
        logger.warning("the upload of %s keeps its lease until it runs out: %s", grant.file_id, error)


class _Upload:
    """Body of one request."""

    def __init__(self, grant: UploadGrant, writer: PartWriter, *, whole: bool) -> None:
        self._grant = grant
        self._writer = writer
        self._whole = whole

    async def run(self, body: AsyncIterator[bytes]) -> UploadStatus:
        """Do the work of `receive_body`."""
        try:
            digest = await self._with_lease(self._received(body))
            if not digest:
                return self._status(await self._paused(), complete=False)
            await in_pool_thread(upload_complete, self._grant, self._writer.written, digest)
        except UploadLost:
            raise UploadEnded from None
        except (PayloadTooLarge, ValidationError):
            await _pause(self._grant, self._grant.offset)
            raise
        except BaseException:
            await self._paused()
            raise
        return self._status(self._writer.written, complete=True)

    def _status(self, offset: int, *, complete: bool) -> UploadStatus:
        return UploadStatus(offset, self._grant.size, complete, self._grant.deadline, self._grant.file_id)

    async def _paused(self) -> int:
        """Give the lease back with the stored bytes; return how many."""
        try:
            await self._writer.finish()
        except StorageUnavailable:
            with suppress(StorageUnavailable):
                await self._writer.sync()
        await _pause(self._grant, self._writer.synced)
        return self._writer.synced

    async def _received(self, body: AsyncIterator[bytes]) -> str:
        """Return the digest of a complete file, else nothing."""
        count = self._grant.offset
        async for piece in body:
            count += len(piece)
            if count > self._grant.size:
                await self._grow(count)
            await self._writer.append(piece)
            del piece  # a body that stalls holds no memory
        await self._writer.finish()
        if self._whole and not count and self._grant.size:
            raise ValidationError("The body is empty; send the bytes of the file.")
        return await self._writer.sha256() if self._whole or count == self._grant.size else ""

    async def _grow(self, size: int) -> None:
        """Reserve more before it is stored. Raise PayloadTooLarge if the permit does not grow, and its errors if it has
        no room.
        """
        if not self._grant.once:
            raise PayloadTooLarge(f"The permit is for {self._grant.size} bytes, and more were sent.")
        self._grant = await in_pool_thread(permit_grow, self._grant, size)

    async def _with_lease(self, work: Coroutine[Any, Any, T]) -> T:
        """Renew the lease while `work` is done.

        Raise UploadLost if the upload ends otherwise: `work` is cancelled within a second of that.
        """
        doing, renewing = asyncio.ensure_future(work), asyncio.ensure_future(self._renew())
        lost: list[str] = []

        def end(reason: str) -> None:
            lost.append(reason)
            renewing.cancel()

        try:
            async with watched_grant(self._grant, lost_uploads, end):
                await asyncio.wait({doing, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                if lost:
                    raise UploadLost
                renewing.result()
            return await doing
        finally:
            for task in (doing, renewing):
                task.cancel()
            await asyncio.gather(doing, renewing, return_exceptions=True)

    async def _renew(self) -> None:
        """Renew the lease; end with an error only. A database that does not answer is asked again, until the lease has
        run out.
        """
        while True:
            await asyncio.sleep(CHECKPOINT_SECONDS)
            stored = await self._writer.sync()
            try:
                await in_pool_thread(upload_progress, self._grant, stored)
            except (DatabaseError, InterfaceError) as error:
                logger.warning("the lease of the upload of %s could not be renewed: %s", self._grant.file_id, error)
