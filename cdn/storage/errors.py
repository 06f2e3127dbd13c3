"""Errors of storing bytes."""

from __future__ import annotations

from common.errors import VMUnavailable


class StorageUnavailable(VMUnavailable):
    """Error of a full disk, or of a store that does not answer."""

    message = "The platform cannot store the file at the moment (its disk may be full). Try again later."

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message, headers={"Retry-After": "5"})
