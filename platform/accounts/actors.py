"""The actor: who makes a request."""

from __future__ import annotations

from dataclasses import dataclass

from accounts.models import Account
from accounts.scopes import Scope


@dataclass(frozen=True, slots=True)
class Actor:
    """The holder of a credential or token, and what its requests reach. `via` is `credential` or `token`.

    `expires`: seconds since the epoch at which the token ends; 0 for a credential.
    """

    account: Account
    scope: Scope
    credential_id: str
    label: str
    namespace_id: str = ""
    namespace_slug: str = ""
    workspace_id: str = ""
    epoch: int = 1
    via: str = "credential"
    expires: int = 0

    @property
    def is_authenticated(self) -> bool:
        """Read by DRF."""
        return True
