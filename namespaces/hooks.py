"""Hooks by which higher apps act on the contents of a namespace (docs/architecture.md, Layers)."""

from __future__ import annotations

from common.errors import QuotaExceeded
from common.hooks import Hook
from namespaces.models import Namespace

# Returns how many workspaces are in a namespace.
workspaces_count: Hook[[Namespace], int] = Hook("namespace.workspaces_count")
# (namespace, actor, because): queues the stop of its running workspaces; returns how many.
workspaces_stop: Hook[[Namespace, str, str], int] = Hook("namespace.workspaces_stop")
# (from, to, actor): moves all workspaces, in the transaction that deletes the first; returns how many.
workspaces_move: Hook[[Namespace, Namespace, str], int] = Hook("namespace.workspaces_move")
# (from, to, actor): moves everything but workspaces, in the transaction that deletes the first; returns how many.
contents_move: Hook[[Namespace, Namespace, str], int] = Hook("namespace.contents_move")
# Queues the deletion of all workspaces of a namespace that is being deleted; returns how many are still there.
workspaces_delete: Hook[[Namespace], int] = Hook("namespace.workspaces_delete")
# The error of a namespace that a quota has suspended, which names the used-up credits; None if no quota has.
quota_error: Hook[[Namespace], QuotaExceeded | None] = Hook("namespace.quota_error")
