"""Creation, lists, sizes and removal of workspaces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, cast

import typer

from microvm.cli.arguments import (
    Confirmed,
    Cpus,
    Environment,
    FirstWorkspace,
    NamedWorkspaces,
    OptionalWorkspace,
    WaitSeconds,
    environment,
    megabytes,
    require_confirmation,
)
from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.output import Column
from microvm.cli.recent import SavedSandbox
from microvm.cli.session import Session, command
from microvm.errors import MicrovmError, WaitTimeout
from microvm.types.workspaces import CreateRequest, Provisioning, Workspace

COLUMNS = (
    Column("Name", lambda row: row["slug"] or row["name"]),
    Column("Status", lambda row: row["status"]),
    Column("Image", lambda row: row["image"]),
    Column("CPU", lambda row: f"{row['resources']['cpus']:g}"),
    Column("RAM", lambda row: f"{row['resources']['memory_mb']} MiB"),
    Column("Disk", lambda row: f"{row['resources']['disk_size_mb']} MiB"),
    Column("Created", lambda row: row["created_at"][:19].replace("T", " ")),
    Column("Id", lambda row: row["id"]),
)
FIELDS = (
    Column("Name", lambda row: row["name"]),
    Column("Slug", lambda row: row["slug"]),
    Column("Id", lambda row: row["id"]),
    Column("Status", lambda row: row["status"]),
    Column("Error", lambda row: (row["info"]["error"] or row["provisioning"]["error"] or {}).get("message")),
    Column("Health", lambda row: row["info"]["health"]),
    Column("Namespace", lambda row: row["namespace"]),
    Column("Mode", lambda row: row["mode"]),
    Column("Image", lambda row: row["image"]),
    Column("CPU", lambda row: f"{row['resources']['cpus']:g}"),
    Column("RAM", lambda row: f"{row['resources']['memory_mb']} MiB"),
    Column("Disk", lambda row: f"{row['resources']['disk_size_mb']} MiB"),
    Column("IP", lambda row: row["ip"]),
    Column("Uptime", lambda row: f"{row['uptime']} s" if row["uptime"] else None),
    Column("SSH", lambda row: row["access"]["ssh_enabled"]),
    Column("Ports", lambda row: [f"{each['port']}: {each['url']}" for each in row["public_ports"]]),
    Column("Created", lambda row: row["created_at"]),
)


def add_workspace_commands(app: typer.Typer) -> None:
    command(app, "create")(create_workspace)
    command(app, "list")(list_workspaces)
    command(app, "show")(show_workspace)
    command(app, "rename")(rename_workspace)
    command(app, "resize")(resize_workspace)
    command(app, "rm")(remove_workspaces)


def create_workspace(
    session: Session,
    *,
    name: Annotated[str | None, typer.Option("--name", help="Its name; the slug is made of it.")] = None,
    image: Annotated[str | None, typer.Option("--image", help="An image of the catalog or of a registry.")] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", help="A preset of the catalog, in place of an image.")
    ] = None,
    cpu: Cpus = None,
    ram: Annotated[str | None, typer.Option("--ram", metavar="SIZE", help="As 512M or 2G.")] = None,
    disk: Annotated[str | None, typer.Option("--disk", metavar="SIZE", help="As 1G or 20G.")] = None,
    env: Environment = None,
    cmd: Annotated[
        str | None, typer.Option("--cmd", help="Its main program, as a shell takes it, in place of the image's.")
    ] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", help="Where it is charged.")] = None,
    ttl: Annotated[
        str | None, typer.Option("--ttl", metavar="TIME", help="Its life, as 2h; it is a temporary one then.")
    ] = None,
    permanent: Annotated[bool, typer.Option("--permanent", help="Keep it until it is deleted.")] = False,
    ssh: Annotated[bool, typer.Option("--ssh", help="With its SSH server.")] = False,
    sandbox: Annotated[bool, typer.Option("--sandbox", help="A sandbox: terminals by WebSocket.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it runs, with progress.")] = False,
    timeout: WaitSeconds = 600,
) -> None:
    """Create a workspace. It is the one that commands without a name mean from then on."""
    if permanent and ttl:
        raise CommandError("A permanent workspace has no TTL.", "Leave one of the two out.", ExitCode.USAGE)
    config = _config(cpu=cpu, ram=ram, disk=disk, env=env or [], ttl=ttl, ssh=ssh) | _present(cmd=cmd or None)
    if sandbox:
        body = _present(name=name or "sandbox", image=image, template=preset, namespace=namespace, config=config)
        _create_sandbox(session, body, timeout if wait else None)
        return
    body = _present(name=name, image=image, preset=preset, namespace=namespace, config=config or None)
    body |= {"mode": "permanent"} if permanent else {}
    with _order_that_may_be_taken(session):
        made = session.client.workspaces.create(**cast(CreateRequest, body))
    session.remember(lambda recent: recent.remember(made["id"]))
    shown = made["slug"] or made["id"]
    if wait:
        made = _ready(session, made["id"], timeout, shown=shown)
    session.output.show_result(made, shown if wait else f"{shown} is being created; `ws show {shown}` has its state.")


def list_workspaces(
    session: Session,
    *,
    status: Annotated[str | None, typer.Option("--status", help="Those in this state.")] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", help="Those of this namespace.")] = None,
    search: Annotated[str | None, typer.Option("--search", help="Those with this text in name or slug.")] = None,
    sandboxes: Annotated[bool, typer.Option("--sandboxes", help="Sandboxes instead.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only their ids, one a line.")] = False,
) -> None:
    """List workspaces, newest first."""
    rows = _listed(session, status=status, namespace=namespace, search=search, sandboxes=sandboxes)
    if quiet:
        session.output.show_lines([row["id"] for row in rows])
    elif sandboxes:
        session.output.show_rows(SANDBOX_COLUMNS, rows, "No sandboxes. `ws create --sandbox` makes one.")
    else:
        session.output.show_rows(COLUMNS, rows, "No workspaces. `ws create --wait` makes one.")


def _listed(
    session: Session, *, status: str | None, namespace: str | None, search: str | None, sandboxes: bool
) -> list[dict[str, Any]]:
    """Raises CommandError for a search of sandboxes."""
    if sandboxes:
        if search is not None:
            hint = "Leave one of the two out; --status and --namespace go with --sandboxes."
            raise CommandError("Sandboxes cannot be searched.", hint, ExitCode.USAGE)
        return [dict(row) for row in session.client.sandboxes.list(namespace=namespace, status=cast(Any, status))]
    rows = session.client.workspaces.list(status=cast(Any, status), namespace=namespace, search=search)
    return [dict(row) for row in rows]


def show_workspace(session: Session, *, workspace: OptionalWorkspace = None) -> None:
    """Show a workspace."""
    session.output.show_object(session.client.workspaces.get(session.workspace(workspace)), FIELDS)


def rename_workspace(
    session: Session,
    *,
    workspace: FirstWorkspace,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
    slug: Annotated[
        str | None, typer.Option("--slug", help="A new slug, too: by the old one it is not found any more.")
    ] = None,
) -> None:
    """Give a workspace another name. Its slug, by which commands and addresses find it, stays unless one is given."""
    body = _present(name=name, slug=slug)
    changed = session.client.workspaces.update(session.workspace(workspace), **cast(Any, body))
    shown = changed["slug"] or changed["id"]
    session.output.show_result(changed, f"{shown} is named {changed['name']}.")


def resize_workspace(
    session: Session,
    *,
    workspace: OptionalWorkspace = None,
    cpu: Cpus = None,
    ram: Annotated[str | None, typer.Option("--ram", metavar="SIZE", help="As 512M or 2G.")] = None,
    disk: Annotated[str | None, typer.Option("--disk", metavar="SIZE", help="As 20G; disks never shrink.")] = None,
    later: Annotated[bool, typer.Option("--later", help="With its next start, not now.")] = False,
) -> None:
    """Change the sizes of a workspace; one that runs is restarted for it where it must be."""
    body = _present(cpus=cpu, memory_mb=megabytes(ram), disk_size_mb=megabytes(disk))
    if not body:
        raise CommandError("Nothing to change.", "Give --cpu, --ram or --disk.", ExitCode.USAGE)
    changed = session.client.resources.patch(session.workspace(workspace), **cast(Any, {**body, "apply": not later}))
    sizes = changed["updated"]
    text = f"{sizes['cpus']:g} CPUs, {sizes['memory_mb']} MiB of memory, {sizes['disk_size_mb']} MiB of disk"
    session.output.show_result(changed, f"{text}{' from its next start on' if later else ''}.")


def remove_workspaces(session: Session, *, workspaces: NamedWorkspaces, yes: Confirmed = False) -> None:
    """Delete workspaces with all their data."""
    names = [session.reference(each) for each in workspaces]
    require_confirmation(f"Delete {', '.join(names)} with all data?", yes)
    for number, name in enumerate(names):
        try:
            _remove(session, name)
        except MicrovmError:
            if number:
                session.output.warn(f"{', '.join(names[:number])}: deleted. {', '.join(names[number:])}: not deleted.")
            raise
    session.output.show_result({"deleted": names}, f"Deleted {', '.join(names)}.")


def _remove(session: Session, name: str) -> None:
    saved = session.recent.sandbox(name)
    found = saved.id if saved else name
    if found.startswith("sbx_"):
        session.client.sandboxes.delete(found)
    else:
        found = session.client.workspaces.get(found)["id"]
        session.client.workspaces.delete(found)
    _forget(session, found)


SANDBOX_COLUMNS = (
    Column("Name", lambda row: row["name"]),
    Column("Status", lambda row: row["status"]),
    Column("Image", lambda row: row["image"]),
    Column("Address", lambda row: row["url"]),
    Column("Id", lambda row: row["id"]),
)


def _config(
    *, cpu: float | None, ram: str | None, disk: str | None, env: list[str], ttl: str | None, ssh: bool
) -> dict[str, Any]:
    found = _present(cpus=cpu, memory_mb=megabytes(ram), disk_size_mb=megabytes(disk), ttl=ttl)
    if env:
        found["env"] = [{"key": key, "value": value} for key, value in environment(env).items()]
    return found | ({"ssh_access": True} if ssh else {})


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _forget(session: Session, workspace: str) -> None:
    session.remember(lambda recent: recent.forget(workspace))


def _create_sandbox(session: Session, body: dict[str, Any], seconds: float | None) -> None:
    """`seconds`: how long to wait until it runs; None: not at all. Raises as `_ready`."""
    with _order_that_may_be_taken(session):
        made = session.client.sandboxes.create(**cast(Any, {**body, "wait_ready": False}))
    if made["token"]:
        saved = SavedSandbox(made["id"], made["name"], made["url"], made["token"])
        session.remember(lambda recent: recent.remember_sandbox(saved))
    session.remember(lambda recent: recent.remember(made["id"]))
    if seconds is None:
        text = f"{made['id']} is being created; `ws show {made['id']}` has its state."
        session.output.show_result(made, text)
        return
    _ready(session, made["workspace_id"], seconds, shown=made["id"])
    session.output.show_result({**made, **session.client.sandboxes.get(made["id"])}, made["id"])


@contextmanager
def _order_that_may_be_taken(session: Session) -> Iterator[None]:
    """Ctrl-C before the answer: whether the order arrived is not known."""
    try:
        yield
    except KeyboardInterrupt:
        session.output.warn("It may be created all the same: `ws list` shows it, and `ws rm` removes it.")
        raise


def _ready(session: Session, workspace: str, timeout: float, *, shown: str) -> Workspace:
    """`shown`: the name that its user knows. Raises CommandError where the creation failed, WaitTimeout."""
    try:
        found = _waited_for(session, workspace, timeout)
    except KeyboardInterrupt:
        session.output.warn(f"{shown} is still being created: `ws show {shown}` shows it, `ws rm {shown}` removes it.")
        raise
    except WaitTimeout:
        message = f"{shown} is not ready after {timeout:g} seconds; it is still being created."
        raise CommandError(
            message, f"`ws show {shown}` shows it, `ws rm {shown}` removes it.", ExitCode.TIMEOUT
        ) from None
    if found["ready"]:
        return found
    error = found["provisioning"]["error"]
    message = error["message"] if error else "It could not be created."
    raise CommandError(message, f"`ws rm {shown}` removes it.")


def _waited_for(session: Session, workspace: str, timeout: float) -> Workspace:
    """As it is when it is ready, or cannot be. Raises WaitTimeout."""
    with session.output.step_progress() as show:

        def progress(state: Provisioning) -> None:
            if state["state"] != "failed":  # its message is that of the error, which follows
                show(state["message"] or state["phase"], state["progress"])

        return session.patient_client.workspaces.wait_until_ready(
            workspace, timeout=timeout, progress=progress, interval=0.5
        )
