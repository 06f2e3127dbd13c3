"""What is raised where bytes cannot be stored."""

from __future__ import annotations

from common.errors import VMUnavailable


class StorageUnavailable(VMUnavailable):
    """The disk is full, or the store does not answer."""

    message = "The platform cannot store the file at the moment (its disk may be full); try again later."

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message, headers={"Retry-After": "5"})
