"""What higher rooms add to accounts (docs/architecture.md, Floors)."""

from __future__ import annotations

from dataclasses import dataclass

from accounts.models import Account
from common.hooks import Hook


@dataclass(frozen=True, slots=True)
class Pin:
    """What a pinned credential is held to."""

    namespace_id: str = ""
    namespace_slug: str = ""
    workspace_id: str = ""


# Runs in the transaction that makes an account: every account has a default namespace from its first moment.
account_created: Hook[[Account], None] = Hook("account_created")
# (account, slug) -> Pin; raises NotFound. Registered by namespaces.
namespace_pin: Hook[[Account, str], Pin] = Hook("namespace_pin")
# (account, id or slug) -> Pin with the workspace's namespace; raises NotFound. Registered by workspaces.
workspace_pin: Hook[[Account, str], Pin] = Hook("workspace_pin")
