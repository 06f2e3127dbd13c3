"""The only writers of sandboxes and their tokens. The machine is a workspace, whose services make, start and delete it.

Each entry of the audit log is written in the transaction of its change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from accounts.actors import Actor
from accounts.audit import audit_entry, record_entry
from common.errors import Forbidden, NotFound
from common.request_origin import NO_ORIGIN, RequestOrigin
from common.secrets_at_rest import keyed_hash
from credits.refusals import refusals_announced
from edge.addresses import SANDBOX_PATH, sandbox_address
from sandboxes.ids import sandbox_id_of
from sandboxes.models import FormerToken, Sandbox, SandboxEvent, StaffToken
from sandboxes.selectors import NOT_FOUND_MESSAGE
from sandboxes.tokens import ACCOUNT_INACTIVE, new_staff_token, new_token, terminal_id_of
from workspaces.audit import record_activity
from workspaces.crud.services import NewWorkspace, workspace_create, workspace_delete
from workspaces.errors import VmNotRunning
from workspaces.models import Operation, Workspace
from workspaces.models.workspace import Kind
from workspaces.power import workspace_restart, workspace_start, workspace_stop
from workspaces.snapshots.forks import Forked, NewForks, workspace_fork
from workspaces.snapshots.services import workspace_restore
from workspaces.states import Status

# Services that the admin calls for one sandbox.
SandboxService = Callable[..., object]
# Older ones are as unknown as any other token.
FORMER_TOKENS = 100
STAFF_TOKEN_LIFE = timedelta(hours=1)
NOT_WOKEN = "A terminal of staff does not wake or start a workspace; the workspace must be running."


@dataclass(frozen=True, slots=True)
class CreatedSandbox:
    """`token`: shown once, so that it is None if an earlier request with the same idempotency key made the sandbox.

    `operation` is the one to wait for.
    """

    workspace: Workspace
    token: str | None
    operation: Operation | None


@refusals_announced()
@transaction.atomic
def sandbox_create(
    *,
    actor: Actor,
    new: NewWorkspace,
    key: str | None = None,
    fingerprint: str = "",
    origin: RequestOrigin = NO_ORIGIN,
) -> CreatedSandbox:
    """Make the row of the machine, the sandbox and its first token, and queue the creation of the machine.

    Raise what `workspace_create` raises; nothing is left then.
    """
    made = workspace_create(actor=actor, new=replace(new, kind=Kind.SANDBOX), key=key, fingerprint=fingerprint)
    if made.replayed:
        return CreatedSandbox(made.workspace, None, made.operation)
    token = _insert_sandbox(made.workspace)
    record_event(made.workspace, "created", actor=actor.label, origin=origin)
    return CreatedSandbox(made.workspace, token, made.operation)


def _insert_sandbox(workspace: Workspace) -> str:
    """Insert the sandbox of a machine. Return its first token."""
    token, now = new_token(), timezone.now()
    Sandbox.objects.create(
        id=sandbox_id_of(workspace.pk),
        workspace=workspace,
        token_hash=keyed_hash(token),
        token_changed_at=now,
        created_at=now,
    )
    return token


@refusals_announced()
@transaction.atomic
def sandbox_fork(
    *,
    actor: Actor,
    workspace: Workspace,
    new: NewForks,
    key: str | None = None,
    fingerprint: str = "",
    origin: RequestOrigin = NO_ORIGIN,
) -> tuple[Forked, dict[str, str]]:
    """Do what `workspace_fork` does, with a sandbox and a token for each copy. Return the tokens, too, by the ids of
    the machines: they are shown once, so that there are none for a repeated request.
    """
    new = replace(new, kind=Kind.SANDBOX)
    made = workspace_fork(actor=actor, workspace=workspace, new=new, key=key, fingerprint=fingerprint)
    if made.replayed:
        return made, {}
    rows = Workspace.objects.in_bulk(list(made.workspace_ids))
    tokens = {key: _insert_sandbox(row) for key, row in rows.items()}
    for row in rows.values():
        record_event(row, "created", actor=actor.label, origin=origin)
    return made, tokens


def sandbox_restore(
    *,
    actor: Actor,
    workspace: Workspace,
    identifier: str | None,
    memory: bool | None,
    origin: RequestOrigin = NO_ORIGIN,
) -> Operation:
    """Do what `workspace_restore` does."""
    with transaction.atomic():
        operation = workspace_restore(actor=actor, workspace=workspace, identifier=identifier, memory=memory)
        record_event(workspace, "restored", actor=actor.label, origin=origin)
    return operation


@transaction.atomic
def sandbox_delete(
    *, workspace: Workspace, actor: str, keep_snapshots: bool = False, origin: RequestOrigin = NO_ORIGIN
) -> tuple[Operation | None, bool]:
    """Do what `workspace_delete` does. From the commit on its token is an unknown one, and its open sockets
    end.
    """
    operation, creating = workspace_delete(workspace=workspace, actor=actor, keep_snapshots=keep_snapshots)
    record_event(workspace, "deleted", actor=actor, origin=origin)
    return operation, creating


def sandbox_start(*, workspace: Workspace, actor: str, origin: RequestOrigin = NO_ORIGIN) -> Operation | None:
    """Do what `workspace_start` does."""
    return _power(workspace, "started", workspace_start, actor, origin)


def sandbox_stop(*, workspace: Workspace, actor: str, origin: RequestOrigin = NO_ORIGIN) -> Operation | None:
    """Do what `workspace_stop` does."""
    return _power(workspace, "stopped", workspace_stop, actor, origin)


def sandbox_restart(*, workspace: Workspace, actor: str, origin: RequestOrigin = NO_ORIGIN) -> Operation | None:
    """Do what `workspace_restart` does."""
    return _power(workspace, "restarted", workspace_restart, actor, origin)


@refusals_announced()
@transaction.atomic
def _power(
    workspace: Workspace,
    action: str,
    service: Callable[..., Operation | None],
    actor: str,
    origin: RequestOrigin,
) -> Operation | None:
    """Change the power state. An entry is written if there is something to do."""
    operation = service(workspace=workspace, actor=actor)
    if operation is not None:
        record_event(workspace, action, actor=actor, origin=origin)
    return operation


@transaction.atomic
def token_regenerate(*, workspace: Workspace, actor: str, origin: RequestOrigin = NO_ORIGIN) -> str:
    """Issue a new token. The old one is refused from the commit on, and open sockets of its bearers end within a
    second.

    If several come at once, the last one's token is valid. Raise NotFound (deleted, or being deleted); nothing has
    changed then.
    """
    rows = Sandbox.objects.select_for_update(of=("self",)).exclude(workspace__status=Status.DELETING)
    sandbox = rows.filter(workspace=workspace).first()
    if sandbox is None:
        raise NotFound(NOT_FOUND_MESSAGE)
    token, now = new_token(), timezone.now()
    FormerToken.objects.create(token_hash=sandbox.token_hash, sandbox=sandbox, replaced_at=now)
    _forget_oldest(sandbox)
    sandbox.token_hash, sandbox.token_changed_at = keyed_hash(token), now
    sandbox.save(update_fields=["token_hash", "token_changed_at"])
    record_event(workspace, "token_regenerated", actor=actor, origin=origin)
    return token


def _forget_oldest(sandbox: Sandbox) -> None:
    former = FormerToken.objects.filter(sandbox=sandbox).order_by("-replaced_at", "-pk")
    FormerToken.objects.filter(pk__in=list(former.values_list("pk", flat=True)[FORMER_TOKENS:])).delete()


@transaction.atomic
def staff_token_create(*, workspace: Workspace, user: User, actor: str, origin: RequestOrigin = NO_ORIGIN) -> str:
    """Issue a token by which `user`, of the staff, opens terminals of the sandbox or plain workspace for
    STAFF_TOKEN_LIFE.

    It opens WebSockets and no other route, and sockets that are open then end with it. The sandbox's own token is
    neither read nor changed. The owner reads of it in the machine's activity. Raise NotFound (deleted, or being
    deleted), Forbidden (the account is not active), VmNotRunning (a plain workspace, which is not woken for it);
    nothing is left then. Expired tokens of all machines are removed.
    """
    rows = Workspace.objects.select_related("account").only("kind", "status", "account_id", "account__is_active")
    found = rows.exclude(status=Status.DELETING).filter(pk=workspace.pk).first()
    if found is None:
        raise NotFound(NOT_FOUND_MESSAGE)
    if not found.account.is_active:
        raise Forbidden(ACCOUNT_INACTIVE)
    if found.kind == Kind.WORKSPACE and found.status != Status.RUNNING:
        raise VmNotRunning(f"The workspace is {found.status}. {NOT_WOKEN}", details={"status": found.status})
    now, token = timezone.now(), new_staff_token()
    StaffToken.objects.filter(expires_at__lt=now).delete()
    StaffToken.objects.create(
        token_hash=keyed_hash(token), workspace=found, user=user, expires_at=now + STAFF_TOKEN_LIFE
    )
    if found.kind == Kind.SANDBOX:
        record_event(workspace, "staff_terminal", actor=actor, origin=origin)
    record_activity(
        workspace, "staff_terminal", f"Staff may open terminals in the {found.kind} for an hour.", actor=actor
    )
    return token


def staff_terminal_url(workspace: Workspace, token: str) -> str:
    """Return the address of the terminal page with a token of staff in the fragment, which is not sent to any server.

    The page removes the token. By path the address has no host, so that the host stays the one of the admin.
    """
    address, id = sandbox_address(settings.ENV.sandbox_url), terminal_id_of(workspace)
    if not address.suffix:
        base = urlsplit(address.url(id)).path
    else:
        # By host there are addresses of sandboxes only.
        base = address.url(id) if workspace.kind == Kind.SANDBOX else f"{SANDBOX_PATH}{id}"
    return f"{base}/terminal#token={token}"


def record_event(workspace: Workspace, action: str, *, actor: str, origin: RequestOrigin) -> None:
    """Write the audit entry in the caller's transaction, and a log line."""
    account_id, about = workspace.account_id, sandbox_id_of(workspace.pk)
    record_entry(audit_entry(SandboxEvent, account_id, about, action, actor=actor, origin=origin))
