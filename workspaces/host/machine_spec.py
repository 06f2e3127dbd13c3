"""Translation of a workspace's row to the driver's machine specification."""

from __future__ import annotations

import posixpath

from django.conf import settings

from vmbackend.driver import Boot, MachineSpec, Workload
from vmbackend.images.reference import parse_reference
from vmbackend.images.types import Image
from vmbackend.policy import NetworkPolicy
from workspaces.images.catalog_snapshots import default_env, desktop_workload
from workspaces.models import Workspace
from workspaces.workloads import workload

# A shell without a terminal ends at once. Base images name one as their command.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def machine_spec(workspace: Workspace, image: Image, *, snapshot: str = "") -> MachineSpec:
    """Return the machine that the row describes; `snapshot`: whose disk a new one takes.

    Environment: the image's, then the preset's, then the workspace's.
    """
    config = image.config
    entrypoint = (*config.entrypoint, *config.cmd)
    working_dir = absolute_path(config.working_dir)
    return MachineSpec(
        id=workspace.pk,
        image=image.digest,
        cpus=workspace.applied_cpu_millis / 1000,
        memory_mb=workspace.applied_memory_mb,
        disk_mb=workspace.applied_disk_size_mb,
        ip=workspace.ip or "",
        network=network_policy(workspace),
        boot=Boot(
            hostname=(workspace.slug or workspace.pk.replace("_", "-"))[:63].rstrip("-"),
            env={"PATH": DEFAULT_PATH, **config.env, **default_env(workspace.catalog_snapshot), **workspace.env},
            cmd=tuple(workspace.cmd) if workspace.cmd else None,
            entrypoint=entrypoint or None,
            working_dir=working_dir,
            user=config.user or "root",
            stop_signal=config.stop_signal,
            stop_grace=settings.ENV.stop_grace_seconds,
            workloads=workloads(workspace),
            wait_for_init=workspace.wait_for_init,
            ssh=workspace.ssh_enabled,
            ssh_keys=tuple(workspace.ssh_keys),
            keep_logs=workspace.keep_logs,
            directories=tuple(dict.fromkeys(filter(None, [working_dir, *map(absolute_path, config.volumes)]))),
        ),
        snapshot=snapshot,
        epoch=workspace.epoch,
        image_changes=tuple(f"image: {change}" for change in image.changes),
    )


def absolute_path(path: str) -> str:
    """Return a path of an image's configuration, which may be relative, as an absolute one. As in Docker, links are not
    resolved. Empty if the image has none.
    """
    return posixpath.normpath("/" + path.lstrip("/")) if path else ""


def workloads(workspace: Workspace) -> tuple[Workload, ...]:
    """Return the enabled workloads of the row, and the desktop's unless the row has a workload of that name."""
    own = tuple(workload(item) for item in workspace.workloads if item.get("enabled", True))
    desktop = desktop_workload(workspace.catalog_snapshot) if workspace.desktop_enabled else None
    if desktop is None or desktop.name in {item["name"] for item in workspace.workloads}:
        return own
    return (*own, desktop)


def network_policy(workspace: Workspace) -> NetworkPolicy:
    """Return the part of the row's network policy that the host enforces; the edge enforces the part for public
    ports.
    """
    return NetworkPolicy(
        allow_internet=workspace.allow_internet,
        egress=tuple(workspace.egress),
        egress_ports=tuple(workspace.egress_ports),
        ingress_ports=tuple(workspace.ingress_ports),
    )


def image_reference(workspace: Workspace) -> str:
    """Return the reference to pull: with the digest if an earlier pull pinned it, so that a moved tag has no effect."""
    if not workspace.image_digest:
        return workspace.image
    return f"{parse_reference(workspace.image).repository}@{workspace.image_digest}"
