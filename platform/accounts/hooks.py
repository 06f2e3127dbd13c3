"""Hooks by which higher apps extend accounts (docs/architecture.md, Layers)."""

from __future__ import annotations

from django.http import HttpRequest

from accounts.models import Account
from accounts.scopes import ScopeBinding
from common.hooks import Hook

# Runs in the transaction that creates an account: every account has a default namespace from the start.
account_created: Hook[[Account], None] = Hook("account_created")
# Runs in the transaction that activates or deactivates an account, whose row is locked and written: what the account
# publishes is served, or not served any more.
account_switched: Hook[[Account], None] = Hook("account_switched")
# Runs in the transaction that deletes an account, which is locked, before anything is deleted: locks the rows that
# other transactions lock without it, so that these end first and none waits for the deletion in a circle.
account_deletion_begins: Hook[[Account], None] = Hook("account_deletion_begins")
# (account, slug) -> the binding; raises NotFound. Registered by namespaces.
namespace_binding: Hook[[Account, str], ScopeBinding] = Hook("namespace_binding")
# (account, id or slug) -> the binding, with the workspace's namespace; raises NotFound. Registered by workspaces.
workspace_binding: Hook[[Account, str], ScopeBinding] = Hook("workspace_binding")
# The account that sends a large body, by a credential that only the routes of one app have; None: a route of another
# app. Raises what refuses the request.
sender_of_body: Hook[[HttpRequest], str | None] = Hook("sender_of_body")
