"""Credentials of one call of git: what its programs are answered, and whom. They are written nowhere.

Git's own questions name the place that a password is for, so they are compared with the place that the call is for; a
key does not leave the host (agent.py).
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote

from sandboxes.level.git.addresses import Remote, read_remote
from vmbackend.guest.asking import ASKPASS

REFUSED = b""
_QUESTION = re.compile(r"(Username|Password) for '([^'\s]{1,4000})': ?")


class Credentials(Protocol):
    """The credentials of one call."""

    @property
    def schemes(self) -> frozenset[str]:
        """Return the schemes of the addresses that the credentials are for."""

    def secrets(self) -> list[str]:
        """Return the strings that must never appear in output, in every encoding."""

    async def answer(self, question: bytes, remote: Remote) -> bytes:
        """Return the answer to a program of the call that is for this remote; b"" is a refusal."""


@dataclass(frozen=True, slots=True)
class Login:
    """A name and a password, or a token in its place."""

    username: str
    password: str = field(repr=False)

    @property
    def schemes(self) -> frozenset[str]:
        return frozenset({"http", "https"})

    def secrets(self) -> list[str]:
        pair = f"{self.username}:{self.password}".encode()
        spellings = (
            self.password,
            quote(self.password, safe=""),
            quote(self.password),
            base64.b64encode(pair).decode(),
        )
        return sorted(set(spellings), key=len, reverse=True)

    async def answer(self, question: bytes, remote: Remote) -> bytes:
        if question[:1] != bytes([ASKPASS]):
            return REFUSED
        asked = _QUESTION.fullmatch(question[1:].decode("utf-8", "replace"))
        place = read_remote(asked[2]) if asked else None
        if asked is None or place is None or not place.is_place_of(remote):
            return REFUSED
        return question[:1] + (self.username if asked[1] == "Username" else self.password).encode()
