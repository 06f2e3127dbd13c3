"""Files whose bytes have arrived, as the upload leaves them: rows by the services, bytes in the part file."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from accounts.models import Account
from cdn.media.pipeline import file_process
from cdn.models import File, Template
from cdn.services.permits import NewFile, permit_create
from cdn.services.uploads import upload_begin, upload_complete
from cdn.storage import part_path
from namespaces.models import Namespace


def received_file(account: Account, data: bytes, filename: str = "any name", **new: Any) -> File:
    """In the account's default namespace, waiting for the worker `media`."""
    namespace = Namespace.objects.get(account=account, is_default=True)
    wanted = NewFile(namespace=namespace, filename=filename, size=len(data), **new)
    issued = permit_create(account=account, new=wanted, actor="tests")
    if not data:
        return issued.file
    grant = upload_begin(issued.token, length=len(data), offset=None, owner="tests")
    part_path(issued.file.pk).write_bytes(data)
    return upload_complete(grant, len(data), sha256(data).hexdigest())


def processed_file(account: Account, data: bytes, filename: str = "any name", **new: Any) -> File:
    """As the worker leaves it."""
    file = received_file(account, data, filename, **new)
    assert file_process(file.pk)
    file.refresh_from_db()
    return file


def policy_set(account: Account, **policy: Any) -> None:
    """What the account's namespaces inherit from now on."""
    Template.objects.update_or_create(account=account, defaults={"policy": policy})
