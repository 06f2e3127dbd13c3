"""A form's file: its permit, its bytes, as those of any upload."""

from __future__ import annotations

from cdn.form_uploads.form import FormFile
from cdn.services.files import file_cancel
from cdn.services.permits import IssuedPermit, NewFile, permit_create
from cdn.upload_tokens import UploadHolder
from cdn.uploads.places import upload_place
from cdn.uploads.receiving import body_receive
from common.async_threads import in_pool_thread


async def form_receive(form: FormFile, holder: UploadHolder) -> str:
    """Receive the file, and return its id: it is looked at next. What ends before that leaves a rejected file, as
    no client could go on with it. To be run to its end.

    Raises what `FormFile`, `permit_create` and `body_receive` do, and UploadsAtOnce.
    """
    # What is held of a file until its permit is made counts, too.
    with upload_place(holder.account.pk):
        size = await form.begin()
    issued = await in_pool_thread(_permit, form, holder, size)
    try:
        received = await body_receive(form.pieces(), issued.token, length=None, offset=None)
    except BaseException:
        await in_pool_thread(file_cancel, issued.file)
        raise
    return received.file_id


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
