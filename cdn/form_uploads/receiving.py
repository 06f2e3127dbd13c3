"""A form's file: its permit, its bytes, as those of any upload."""

from __future__ import annotations

import asyncio

from cdn.form_uploads.form import HELD_BYTES, FormFile
from cdn.services.files import file_cancel
from cdn.services.permits import IssuedPermit, NewFile, permit_create
from cdn.upload_tokens import UploadHolder, ended_grants
from cdn.uploads.places import upload_place
from cdn.uploads.receiving import receive_body
from common.async_threads import in_pool_thread
from common.streaming_body import RequestStalled
from common.watched_bodies import BodyGrant, while_granted

BEGIN_SECONDS = 30.0


async def receive_form(form: FormFile, holder: UploadHolder) -> str:
    """Receive the file, and return its id: it is looked at next. What ends before that leaves a rejected file, as
    no client could go on with it. To be run to its end.

    Raises what `FormFile`, `permit_create` and `receive_body` do, UploadsAtOnce, and Unauthorized.
    """
    # What is held of a file until its permit is made counts, too.
    with upload_place(holder.account.pk):
        size = await _begin(form, holder)
    issued = await in_pool_thread(_permit, form, holder, size)
    try:
        received = await receive_body(form.pieces(), issued.token, length=None, offset=None)
    except BaseException:
        await in_pool_thread(file_cancel, issued.file)
        raise
    return received.file_id


async def _begin(form: FormFile, holder: UploadHolder) -> int:
    """As `FormFile.begin`, for a limited time and while the token's credential is valid: nothing else bounds how long a
    slow client has the memory. Raises RequestStalled, Unauthorized.
    """
    try:
        async with asyncio.timeout(BEGIN_SECONDS), while_granted(BodyGrant(holder.grant, ended_grants)):
            return await form.begin()
    except TimeoutError as exc:
        message = f"The file, or the first {HELD_BYTES} bytes of it, did not arrive within {BEGIN_SECONDS:.0f} seconds."
        raise RequestStalled(message) from exc


def _permit(form: FormFile, holder: UploadHolder, size: int) -> IssuedPermit:
    terms = holder.terms
    new = NewFile(
        namespace=terms.namespace,
        filename=form.filename,
        size=size,
        content_type=form.content_type,
        tags=terms.tags,
        variants=terms.variants,
        metadata=terms.metadata,
    )
    return permit_create(account=holder.account, new=new, actor=holder.label)
