"""Headers of tus 1.0 (core, expiration), and headers by which programs of any page may use an upload address.

The address itself is the credential, and browsers add none of theirs, so that any origin may use it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from django.http import HttpRequest
from django.utils.http import http_date

from cdn.errors import UploadUnknown
from cdn.services.uploads import UploadStatus
from common.errors import DomainError, UnsupportedMediaType, ValidationError

VERSION = "1.0.0"
PART_TYPE = "application/offset+octet-stream"
OFFSET = "Upload-Offset"
MAX_AGE_SECONDS = 86400
# Headers of every response, errors included.
HEADERS = {
    "Tus-Resumable": VERSION,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": (
        "Retry-After, Tus-Extension, Tus-Resumable, Tus-Version, Upload-Expires, Upload-Length, Upload-Offset, "
        "X-Request-ID"
    ),
}
DESCRIPTION = {
    "Tus-Version": VERSION,
    "Tus-Extension": "expiration",
    "Allow": "PUT, PATCH, HEAD, OPTIONS",
    "Access-Control-Allow-Methods": "PUT, PATCH, HEAD, POST, OPTIONS",
    "Access-Control-Allow-Headers": (
        "Content-Type, Tus-Resumable, Upload-Length, Upload-Offset, X-HTTP-Method-Override, X-Request-ID"
    ),
    "Access-Control-Max-Age": str(MAX_AGE_SECONDS),
}
_NUMBER = re.compile(r"[0-9]{1,16}")
# A token is shorter; longer texts are not looked up.
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,128}")


class TusVersionUnsupported(DomainError):
    code = "precondition_failed"
    status = 412
    message = f"This server speaks tus {VERSION}."

    def __init__(self) -> None:
        super().__init__(headers={"Tus-Version": VERSION})


def require_version(headers: Mapping[str, str]) -> None:
    """Raise TusVersionUnsupported for another version. Plain HTTP clients name none."""
    if headers.get("Tus-Resumable", VERSION) != VERSION:
        raise TusVersionUnsupported


def require_plain(headers: Mapping[str, str]) -> None:
    """Raise UnsupportedMediaType for a coded body: its bytes would be published as those of the file."""
    if headers.get("Content-Encoding", "").strip().lower() not in ("", "identity"):
        raise UnsupportedMediaType("Send the bytes of the file as they are, without a Content-Encoding.")


def require_whole(headers: Mapping[str, str]) -> None:
    """Raise ValidationError for a part, as some protocols send it by PUT: it would be published as the whole file."""
    if "Content-Range" in headers:
        raise ValidationError(details={"Content-Range": ["Parts are sent by PATCH, with an Upload-Offset."]})


def checked_token(token: str) -> str:
    """Return the token. Raise UploadUnknown if the text cannot be one."""
    if not _TOKEN.fullmatch(token):
        raise UploadUnknown
    return token


def part_offset(request: HttpRequest) -> int:
    """Return the offset at which a part begins. Raise UnsupportedMediaType, ValidationError."""
    if request.headers.get("Content-Type", "").strip().lower() != PART_TYPE:
        raise UnsupportedMediaType(f"Send parts as {PART_TYPE}.")
    given = request.headers.get(OFFSET, "")
    if not _NUMBER.fullmatch(given):
        raise ValidationError(details={OFFSET: ["Give the offset of the part as a whole number."]})
    return int(given)


def body_length(request: HttpRequest) -> int | None:
    """Return the length that the client announced; None for a chunked body. Raise ValidationError."""
    given = request.headers.get("Content-Length", "")
    if request.headers.get("Transfer-Encoding") or not given:
        return None
    if not given.isascii() or not given.isdigit():
        raise ValidationError("The Content-Length header is not a number.")
    return int(given)


def status_headers(status: UploadStatus) -> dict[str, str]:
    """Return the headers that say how far an upload is."""
    return {
        OFFSET: str(status.offset),
        # If fewer bytes than the permit's were sent as a whole file, they are all of it.
        "Upload-Length": str(status.offset if status.complete else status.size),
        "Upload-Expires": http_date(status.expires_at.timestamp()),
    }
