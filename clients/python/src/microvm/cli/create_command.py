"""Creation of workspaces and sandboxes: `ws create`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, cast

import typer

from microvm.cli.arguments import (
    Cpus,
    Environment,
    Memory,
    Permanent,
    TimeToLive,
    WaitSeconds,
    collect_fields,
    env_entries,
    megabytes,
    require_one_life,
)
from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.session import Session, command
from microvm.errors import WaitTimeout
from microvm.types.workspaces import CreateRequest, Provisioning, Workspace


def add_create_command(app: typer.Typer) -> None:
    command(app, "create")(create_workspace)


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
    snapshot: Annotated[
        str | None, typer.Option("--snapshot", help="A snapshot to go on from, by id or name, in place of an image.")
    ] = None,
    memory: Memory = None,
    ttl: TimeToLive = None,
    permanent: Permanent = False,
    ssh: Annotated[bool, typer.Option("--ssh", help="With its SSH server.")] = False,
    sandbox: Annotated[bool, typer.Option("--sandbox", help="A sandbox: terminals by WebSocket.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it runs, with progress.")] = False,
    timeout: WaitSeconds = 600,
) -> None:
    """Create a workspace. It is the one that commands without a name mean from then on."""
    require_one_life(ttl, permanent=permanent)
    config = _config(cpu=cpu, ram=ram, disk=disk, env=env or [], ttl=ttl, ssh=ssh) | collect_fields(cmd=cmd or None)
    body = collect_fields(image=image, namespace=namespace, snapshot=snapshot, memory=memory)
    if sandbox:
        body |= collect_fields(name=name or "sandbox", template=preset, config=config)
        _create_sandbox(session, body, timeout if wait else None)
        return
    body |= collect_fields(name=name, preset=preset, config=config or None, mode="permanent" if permanent else None)
    with order_that_may_be_taken(session):
        made = session.client.workspaces.create(**cast(CreateRequest, body))
    session.remember(lambda recent: recent.remember(made["id"]))
    shown = made["slug"] or made["id"]
    if wait:
        made = _ready(session, made["id"], timeout, shown=shown)
    session.output.show_result(made, shown if wait else f"{shown} is being created; `ws show {shown}` has its state.")


def _config(
    *, cpu: float | None, ram: str | None, disk: str | None, env: list[str], ttl: str | None, ssh: bool
) -> dict[str, Any]:
    found = collect_fields(cpus=cpu, memory_mb=megabytes(ram), disk_size_mb=megabytes(disk), ttl=ttl)
    if env:
        found["env"] = env_entries(env)
    return found | ({"ssh_access": True} if ssh else {})


def _create_sandbox(session: Session, body: dict[str, Any], seconds: float | None) -> None:
    """`seconds`: how long to wait until it runs; None: not at all. Raises as `_ready`."""
    with order_that_may_be_taken(session):
        made = session.client.sandboxes.create(**cast(Any, {**body, "wait_ready": False}))
    session.remember_token(made)
    session.remember(lambda recent: recent.remember(made["id"]))
    if seconds is None:
        text = f"{made['id']} is being created; `ws show {made['id']}` has its state."
        session.output.show_result(made, text)
        return
    _ready(session, made["workspace_id"], seconds, shown=made["id"])
    session.output.show_result({**made, **session.client.sandboxes.get(made["id"])}, made["id"])


@contextmanager
def order_that_may_be_taken(session: Session, shown: str = "ws list", removed: str = "ws rm") -> Iterator[None]:
    """Ctrl-C before the answer: whether the order arrived is not known. `shown`, `removed`: the commands for it."""
    try:
        yield
    except KeyboardInterrupt:
        session.output.warn(f"It may be created all the same: `{shown}` shows it, and `{removed}` removes it.")
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
