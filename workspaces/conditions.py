"""Ranges and conditional requests of files in a guest: `Range`, `If-Range`, validators, announced sizes."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.cache import get_conditional_response
from django.utils.http import http_date, parse_http_date_safe

from common.errors import DomainError
from vmbackend.guest.session import Entry

# A file that changed this recently may change again within the same second, the resolution of its time.
SETTLED_SECONDS = 2.0


class RangeNotSatisfiable(DomainError):
    code = "range_not_satisfiable"
    status = 416
    message = "The range is outside of the file."


class FileShrank(Exception):
    """Sign that a file has fewer bytes than announced. The response is cut off, which is how HTTP reports missing
    bytes.
    """


class PreconditionFailed(DomainError):
    code = "precondition_failed"
    status = 412
    message = "The file does not meet the conditions of the request."


@dataclass(frozen=True, slots=True)
class Part:
    """The requested bytes of a file. `length` None: to the end."""

    offset: int = 0
    length: int | None = None
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Validators:
    """Validators of a file: they identify its content by its size and the second of its last change."""

    etag: str
    modified: int

    @classmethod
    def of(cls, entry: Entry) -> Validators:
        modified = max(0, int(entry.modified))
        tag = f'"{entry.size:x}-{modified:x}"'
        return cls(f"W/{tag}" if time.time() - modified < SETTLED_SECONDS else tag, modified)

    def headers(self) -> dict[str, str]:
        return {"ETag": self.etag, "Last-Modified": http_date(self.modified)}

    def not_modified(self, request: HttpRequest) -> HttpResponseBase | None:
        """Return a 304 response if the client has this content already. Raise PreconditionFailed."""
        response = get_conditional_response(request, etag=self.etag, last_modified=self.modified)
        if response is not None and response.status_code == PreconditionFailed.status:
            raise PreconditionFailed(headers=self.headers())
        return response

    def is_still(self, if_range: str | None) -> bool:
        """Return whether a client with the content that `if_range` identifies may get a range of this one."""
        if if_range is None:
            return True
        if self.etag.startswith("W/"):
            return False
        return if_range.strip() == self.etag or parse_http_date_safe(if_range) == self.modified


def wanted_part(headers: Mapping[str, str], size: int, validators: Validators | None) -> Part:
    """Return one range of bytes. More than one, or another unit, is served as the whole file, as HTTP allows.

    Without `validators` an `If-Range` never matches. Raise RangeNotSatisfiable.
    """
    match = re.fullmatch(r"(?i:bytes)=(\d{0,18})-(\d{0,18})", (headers.get("Range") or "").strip())
    whole = Part(length=size)
    if match is None or match.groups() == ("", "") or not _is_still(validators, headers.get("If-Range")):
        return whole
    first, last = match.groups()
    if first and last and int(first) > int(last):
        return whole
    if not first:
        start, end = max(0, size - int(last)), size - 1
    else:
        start, end = int(first), min(int(last), size - 1) if last else size - 1
    if start > end or start >= size:
        raise RangeNotSatisfiable(headers={"Content-Range": f"bytes */{size}"})
    return Part(start, end - start + 1, partial=True)


def _is_still(validators: Validators | None, if_range: str | None) -> bool:
    return if_range is None if validators is None else validators.is_still(if_range)


async def exactly_sized(chunks: Any, size: int) -> AsyncIterator[bytes]:
    """Yield the announced number of bytes. Raise FileShrank if there are fewer."""
    async with aclosing(chunks):
        async for chunk in chunks:
            size -= len(chunk)
            yield chunk
    if size:
        raise FileShrank(f"{size} bytes less than announced")
