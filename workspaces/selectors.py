"""Reading workspaces within the scope of an actor. A workspace outside of it does not exist for the actor (404)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.db.models import F, Q, QuerySet

from accounts.actors import Actor
from accounts.models import Account
from accounts.permissions import OTHER_NAMESPACE, require_named_namespace
from accounts.scopes import Scope, ScopeBinding
from common.compiled_query import CompiledQuery
from common.errors import Forbidden, NotFound
from workspaces.host_away import with_host
from workspaces.models import Snapshot, WarmMachine, Workspace
from workspaces.models.workspace import JOINED, Kind
from workspaces.states import Status

NOT_FOUND_MESSAGE = "There is no such workspace."
# Columns that a workspace object does not contain: above all the encrypted ones, whose decryption costs more than the
# rest of a row. They are loaded on access. Only the slug of the namespace is joined.
HIDDEN = frozenset(
    {
        "env", "workloads", "cmd", "macos", "metadata", "image_digest", "ssh_host_key", "wait_for_init",
        "desktop_enabled", "proxy_assignment_id", "static_network", "ttl_seconds", "ttl_action", "ttl_expires_at",
        "ttl_length",
        "remove_on_exit", "restart_policy", "max_restarts", "restart_count", "last_exit_code", "last_exit_reason",
        "keep_logs", "control_port", "kind", "last_restart_at", "restart_history", "restart_due_at",
        "ssh_keys", "ssh_stale", "stale_workloads", "network_stale", "suspend_after", "stop_after",
        "idle_due_at", "memory_expires_at", "runtime_enabled", "runtime_epoch",
        "applied_cpu_millis", "applied_memory_mb", "applied_disk_size_mb", "placement",
    }
)  # fmt: skip
SHOWN = [field.name for field in Workspace._meta.concrete_fields if field.name not in HIDDEN]


def visible_workspaces(actor: Actor) -> QuerySet[Workspace]:
    """Return the workspaces that the actor may see, with the columns of a workspace object."""
    found = Workspace.objects.filter(account=actor.account).only(*SHOWN).annotate(joined_namespace=F("namespace__slug"))
    found = with_host(found)
    if actor.scope is Scope.NAMESPACE:
        return found.filter(namespace_id=actor.namespace_id)
    if actor.scope is Scope.WORKSPACE:
        return found.filter(pk=actor.workspace_id)
    return found


def get_workspace(actor: Actor, identifier: str, *, whole: bool = False) -> Workspace:
    """Return a workspace by id or slug; `whole` with every column. Raise NotFound, also if the actor may not see it."""
    by = "pk" if identifier.startswith("ws_") else "slug"
    columns, query = _compiled(actor.scope, by, whole)
    within = {Scope.NAMESPACE: (actor.namespace_id,), Scope.WORKSPACE: (actor.workspace_id,)}.get(actor.scope, ())
    row = query.first_row([actor.account.pk, identifier, *map(str, within)])
    if row is None:
        raise NotFound(NOT_FOUND_MESSAGE)
    found = Workspace.from_db(DEFAULT_DB_ALIAS, columns, row[: len(columns)])
    # As the annotations of `visible_workspaces`.
    found.joined_namespace, *host = row[len(columns) :]  # type: ignore[attr-defined]
    found.take_joined(host)
    # The account is the actor's; this saves a query.
    found.account = actor.account
    return found


@cache
def _compiled(scope: Scope, by: str, whole: bool) -> tuple[list[str], CompiledQuery]:
    """Return the columns of `visible_workspaces` and its query for one row, whose values are the account, the
    identifier, and the namespace or workspace of the scope if it has one.

    This is the most frequent read. Compiling the statement, and asking each column for its converters again, costs
    several times the read itself.
    """
    fields = [field for field in Workspace._meta.concrete_fields if whole or field.name not in HIDDEN]

    def make_rows(values: Sequence[str]) -> QuerySet[Workspace, tuple[Any, ...]]:
        account, identifier, within = (*values, "")[:3]
        named = Actor(Account(pk=account), scope, credential_id="", label="", namespace_id=within, workspace_id=within)
        rows = visible_workspaces(named).filter(**{by: identifier}).order_by()
        return rows.values_list(*(field.attname for field in fields), "joined_namespace", *JOINED)

    return [field.attname for field in fields], CompiledQuery(make_rows)


def workspaces_in(actor: Actor, namespace: str) -> QuerySet[Workspace]:
    """Return the workspaces that the actor may see, in the namespace that a request names, if it names one.

    Raise Forbidden if the credential is bound to another namespace, or to a workspace in another one.
    """
    found = visible_workspaces(actor)
    if not namespace:
        return found
    require_named_namespace(actor, namespace)
    found = found.filter(namespace__slug=namespace)
    # The workspace may have been moved since it was bound: its row says where it is.
    if actor.scope is Scope.WORKSPACE and not found.exists():
        raise Forbidden(OTHER_NAMESPACE)
    return found


def listed_workspaces(
    actor: Actor, *, mode: str = "", status: str = "", namespace: str = "", search: str = ""
) -> QuerySet[Workspace]:
    """Return the list's rows, newest first. Sandboxes have a list of their own (`GET /sandbox`). Raise Forbidden (bound
    to another namespace).
    """
    found = workspaces_in(actor, namespace).filter(kind=Kind.WORKSPACE)
    if mode:
        found = found.filter(mode=mode)
    if status:
        found = found.filter(status=status)
    if search:
        found = found.filter(
            Q(name__icontains=search) | Q(slug__icontains=search) | Q(image__icontains=search) | Q(pk=search)
        )
    return found.order_by("-created_at", "-id")


def total_count(actor: Actor, rows: QuerySet[Workspace], *, filtered: bool) -> int:
    """Return how many rows a list has over all its pages.

    The number of an account's machines is a column of its row; its sandboxes are counted on an index of them.
    """
    if actor.scope is Scope.ACCOUNT and not filtered:
        sandboxes = Workspace.objects.filter(account=actor.account, kind=Kind.SANDBOX)
        return actor.account.workspace_count - sandboxes.count()
    return rows.count()


def scope_binding(account: Account, identifier: str) -> ScopeBinding:
    """Return the binding of a workspace-scope credential. Raise NotFound."""
    by = Q(pk=identifier) | Q(slug=identifier)
    found = Workspace.objects.filter(account=account).filter(by).select_related("namespace").first()
    if found is None:
        raise NotFound(NOT_FOUND_MESSAGE)
    return ScopeBinding(namespace_id=found.namespace_id, namespace_slug=found.namespace.slug, workspace_id=found.pk)


def digests_in_use(host: str) -> set[str]:
    """Return the digests of the images that rows of this host use; they are never evicted."""
    rows = (
        Workspace.objects.filter(host_id=host).exclude(image_digest="").exclude(status=Status.DESTROYED),
        Snapshot.objects.filter(host_id=host),
        WarmMachine.objects.filter(host_id=host),
    )
    return {digest for found in rows for digest in found.order_by().values_list("image_digest", flat=True).distinct()}
