"""Access tokens.

Written by `make client`.
"""

from __future__ import annotations

from typing import Unpack

from microvm.sync.group import Group
from microvm.types.tokens import TokenRequest, TokenResponse


class TokenRoutes(Group):
    """Access tokens."""

    def create(self, **body: Unpack[TokenRequest]) -> TokenResponse:
        """Issue an access token whose scope is within the scope of the credential."""
        answer: TokenResponse = self._call("POST", "/tokens", body=body)
        return answer
