"""The vmhost process: one HostSide, opened when the Celery worker starts and closed when it stops.

A worker becomes the vmhost of its machine by PLATFORM_ROLE=vmhost. If the hypervisor cannot be opened the process ends,
and its supervisor starts it again.
"""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import transaction

from vmbackend import services as hosts
from vmbackend.backend import build_driver, image_store
from vmbackend.errors import BackendError
from workspaces.host import restarts
from workspaces.host.host_shutdown import stop_all_machines
from workspaces.host.machine_events import handle_machine_event
from workspaces.host.metering.sampler import Sampler
from workspaces.host.network_policy import apply_stale_policies
from workspaces.host.reconcile.machines import reconcile_machines
from workspaces.host.reconcile.operations import settle_orphaned_operations
from workspaces.host.runtime import HostRuntime
from workspaces.selectors import digests_in_use

logger = logging.getLogger(__name__)

_side: HostRuntime | None = None
_sampler: Sampler | None = None


def host_runtime() -> HostRuntime:
    """This process's host side. Raises RuntimeError in any other process than vmhost."""
    if _side is None:
        raise RuntimeError("this process is no vmhost")
    return _side


def open_host() -> HostRuntime:
    """Open the driver, settle what an earlier vmhost left, reconcile once, restart what the host's going down ended."""
    global _side, _sampler  # noqa: PLW0603 one for each process, by design
    env = settings.ENV
    made = HostRuntime(name=env.host_name, subnet=str(env.subnet), driver=build_driver(), images=image_store())
    made.start(handle_machine_event)
    made.images.sweep()
    _side = made
    reconcile(made)
    boot_id = made.driver.capacity().boot_id
    with transaction.atomic():  # a boot that is remembered has had its restarts planned
        rebooted = hosts.record_host_boot(name=made.name, boot_id=boot_id)
        restarts.plan_after_host_start(made.name, rebooted=rebooted)
    _sampler = Sampler(made.name, made.driver)
    _sampler.start()
    return made


def close_host() -> None:
    """Disconnect; machines go on, or are stopped where PLATFORM_STOP_VMS_ON_DOWN says so."""
    global _side, _sampler  # noqa: PLW0603
    if _sampler is not None:
        _sampler.stop()
        _sampler = None
    if _side is not None:
        if settings.ENV.stop_vms_on_down:
            stop_all_machines(_side.name, _side.driver, settings.ENV.stop_grace_seconds)
        _side.stop()
        _side = None


def reconcile(on: HostRuntime) -> int:
    """One pass over this host. Returns how many things were put right."""
    mended = settle_orphaned_operations(on)
    try:
        mended += reconcile_machines(on)
        mended += apply_stale_policies(on.driver, on.name)
        on.images.evict(in_use=digests_in_use(on.name))
    except BackendError as exc:
        logger.warning("reconcile: %s", exc)
    return mended


def is_vmhost() -> bool:
    return bool(settings.ENV.role == "vmhost")
