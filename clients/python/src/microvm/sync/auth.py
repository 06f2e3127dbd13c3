"""Credentials: what is sent with each request."""

from __future__ import annotations

from typing import Protocol


class Auth(Protocol):
    """Gives the headers of a request."""

    def headers(self) -> dict[str, str]: ...

    def is_renewable(self, refused: dict[str, str]) -> bool:
        """Called after a 401 with the headers that were refused: whether `headers` may give others now."""
        ...


class FixedAuth:
    """The same headers each time."""

    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers

    def headers(self) -> dict[str, str]:
        return self._headers

    def is_renewable(self, refused: dict[str, str]) -> bool:
        return False
