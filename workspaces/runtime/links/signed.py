"""Links to one file: signed, not stored. Each names its workspace, the epoch that it was made in, and its end."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from datetime import UTC, datetime

from django.core import signing
from django.utils import timezone

from common.errors import Unauthorized
from workspaces.data_plane.holders import TokenUnknown

SALT = "workspaces.runtime.file_link"
# A path of 4,096 bytes, which may all be escaped, and what is around it.
MAX_LENGTH = 40_000
UNKNOWN = "The link is unknown."
EXPIRED = "The link has expired: ask for another one."


@dataclass(frozen=True, slots=True)
class FileLink:
    """The right to read one file, or to replace it.

    `ends`: seconds since 1970. `max_bytes`: of a file that is sent; None: no limit of its own.
    """

    workspace_id: str
    epoch: int
    method: str
    path: str
    max_bytes: int | None
    ends: int

    @property
    def expires_at(self) -> datetime:
        return datetime.fromtimestamp(self.ends, UTC)


def encode_link(link: FileLink) -> str:
    """Return the last part of a link's address."""
    return signing.dumps(astuple(link), salt=SALT, compress=True)


def decode_link(text: str) -> FileLink:
    """Return the link of an address. Raise TokenUnknown, Unauthorized (expired)."""
    if len(text) > MAX_LENGTH:
        raise TokenUnknown(UNKNOWN)
    try:
        link = FileLink(*signing.loads(text, salt=SALT))
    except signing.BadSignature:
        raise TokenUnknown(UNKNOWN) from None
    if link.ends <= timezone.now().timestamp():
        raise Unauthorized(EXPIRED)
    return link
