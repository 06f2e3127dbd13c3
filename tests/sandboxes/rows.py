"""Sandboxes made directly, for tests that need no machine, or one of the fake driver's under a row of their own."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from accounts.models import Account
from common.secrets_at_rest import keyed_hash
from sandboxes.ids import sandbox_id_of
from sandboxes.models import Sandbox
from sandboxes.tokens import new_token
from tests.workspaces.rows import make_workspace
from workspaces.models import Workspace
from workspaces.models.workspace import Kind


def make_sandbox(account: Account, **fields: Any) -> tuple[Sandbox, str]:
    """A sandbox with the row of its machine (`make_workspace`), and its token."""
    return sandbox_of(make_workspace(account, kind=Kind.SANDBOX, **fields))


def sandbox_of(workspace: Workspace) -> tuple[Sandbox, str]:
    """The sandbox of a machine's row, and its token."""
    token, now = new_token(), timezone.now()
    made = Sandbox.objects.create(
        id=sandbox_id_of(workspace.pk),
        workspace=workspace,
        token_hash=keyed_hash(token),
        token_changed_at=now,
        created_at=now,
    )
    return made, token
