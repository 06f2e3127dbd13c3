"""Receipt of a form's file: its permit, and its bytes as those of any upload."""

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
    """Receive the file, and return its id: it is processed next.

    If this ends before that, a rejected file is left, because no client could go on with it; if the process is killed,
    the sweep rejects it when the lease has run out. Run this to its end, even if the request ends. Raise the errors of
    `FormFile`, `permit_create` and `receive_body`, UploadsAtOnce, and Unauthorized (the token's credential has ended).
    """
    # Bytes that are held before the permit is made count, too.
    with upload_place(holder.account.pk):
        size = await _begin(form, holder)
    issued = await in_pool_thread(_permit, form, holder, size)
    try:
        async with while_granted(BodyGrant(holder.grant, ended_grants)):
            received = await receive_body(form.pieces(), issued.token, length=None, offset=None, once=True)
    except BaseException:
        await in_pool_thread(file_cancel, issued.file)
        raise
    return received.file_id


async def _begin(form: FormFile, holder: UploadHolder) -> int:
    """Call `FormFile.begin`, for a limited time and while the token's credential is valid.

    Nothing else bounds how long a slow client has the memory. Raise RequestStalled, Unauthorized.
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
    return permit_create(account=holder.account, new=new, actor=holder.label, once=True)
