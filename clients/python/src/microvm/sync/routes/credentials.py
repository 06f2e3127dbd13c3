"""Client credentials.

Written by `make client`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from microvm.addresses import quoted
from microvm.sync.group import Group
from microvm.types.credentials import CredentialBody, CredentialRequest, NewCredentialResponse


class CredentialRoutes(Group):
    """Client credentials."""

    def create(self, **body: Unpack[CredentialRequest]) -> NewCredentialResponse:
        """Create a credential of the given `scope`. The secret is returned in this response only."""
        answer: NewCredentialResponse = self._call("POST", "/credentials", body=body)
        return answer

    def list(self, *, page_size: int = 100) -> Iterator[CredentialBody]:
        """The account's credentials, newest first, without their secrets."""
        return self._pages("/credentials", "credentials", {}, page_size)

    def rotate(self, credential: str) -> NewCredentialResponse:
        """Replace the secret; the old one and its tokens are revoked immediately."""
        answer: NewCredentialResponse = self._call("POST", f"/credentials/{quoted(credential)}/rotate")
        return answer

    def delete(self, credential: str) -> None:
        """Delete a credential; it and its tokens are revoked immediately."""
        self._delete(f"/credentials/{quoted(credential)}")
