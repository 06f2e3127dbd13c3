"""The vmhost process: one HostRuntime, opened when the Celery worker starts and closed when it stops.

A worker becomes the vmhost of its machine by PLATFORM_ROLE=vmhost. If the hypervisor cannot be opened the process ends,
and its supervisor starts it again.
"""

from __future__ import annotations

import logging
from functools import partial

from django.conf import settings
from django.db import transaction

from vmbackend import services as hosts
from vmbackend.backend import build_driver, image_store
from vmbackend.errors import BackendError
from vmbackend.power import GUEST_END_SECONDS
from workspaces import warm_machines
from workspaces.host import restarts
from workspaces.host.host_shutdown import stop_all_machines
from workspaces.host.machine_events import handle_machine_event
from workspaces.host.metering.sampler import Sampler
from workspaces.host.moved import settle_moves
from workspaces.host.network_policy import apply_stale_policies
from workspaces.host.pool.demand import WINDOW
from workspaces.host.reconcile.machines import reconcile_machines, resume_paused_machines
from workspaces.host.reconcile.operations import settle_orphaned_operations
from workspaces.host.runtime import HostRuntime
from workspaces.host.stored_snapshots import reconcile_snapshots
from workspaces.selectors import digests_in_use

logger = logging.getLogger(__name__)

_runtime: HostRuntime | None = None
_sampler: Sampler | None = None


def host_runtime() -> HostRuntime:
    """Return the host runtime of this process. Raise RuntimeError in any process but vmhost."""
    if _runtime is None:
        raise RuntimeError("this process is not vmhost")
    return _runtime


def open_host() -> HostRuntime:
    """Open the driver, settle the remains of an earlier vmhost, reconcile once, and plan restarts after a host shutdown
    or boot.

    Raise BackendUnavailable.
    """
    global _runtime, _sampler  # noqa: PLW0603 one for each process, by design
    env = settings.ENV
    runtime = HostRuntime(name=env.host_name, subnet=str(env.subnet), driver=build_driver(), images=image_store())
    # This is first, because the rest writes, which fails on a full disk.
    runtime.disk_guard.start(lambda: resume_paused_machines(runtime))
    runtime.start(partial(handle_machine_event, host_id=runtime.host_id))
    _sweep_images(runtime)
    _runtime = runtime
    reconcile_rows_and_machines(runtime)
    boot_id = runtime.driver.capacity().boot_id
    with transaction.atomic():  # so that a boot is recorded only if its restarts are planned
        rebooted = hosts.host_was_booted(host_id=runtime.host_id, boot_id=boot_id)
        restarts.plan_after_host_start(runtime.host_id, rebooted=rebooted)
        # Last: whoever changes a workspace, too, locks its host after it.
        hosts.record_host_boot(host_id=runtime.host_id, boot_id=boot_id)
    runtime.pool.start()
    _sampler = Sampler(runtime.host_id, runtime.driver)
    _sampler.start()
    return runtime


def _sweep_images(runtime: HostRuntime) -> None:
    """Remove the remains of dead pulls. An error is logged only: the remains cost disk space, but a host that does not
    start costs every tenant its machines.
    """
    try:
        runtime.images.sweep()
    except OSError:  # a full disk, on which no lock can be made; a damaged file system
        logger.exception("the remains of image pulls were not removed")


def close_host() -> None:
    """Disconnect. Machines continue to run, or are stopped with PLATFORM_STOP_VMS_ON_DOWN.

    They are not stopped if another machine has the host's name by now: the rows belong to its machines.
    """
    global _runtime, _sampler  # noqa: PLW0603
    if _sampler is not None:
        _sampler.stop()
        _sampler = None
    if _runtime is not None:
        if settings.ENV.stop_vms_on_down and hosts.host_held_since(name=_runtime.name, claim=_runtime.claim) is None:
            _runtime.pool.stop()
            _runtime.pool.empty_pool()
            stop_all_machines(_runtime.host_id, _runtime.driver, settings.ENV.stop_grace_seconds + GUEST_END_SECONDS)
        _runtime.stop()
        _runtime = None


def reconcile_rows_and_machines(runtime: HostRuntime) -> int:
    """Reconcile this host once. Return how many rows, machines and policies were corrected."""
    repaired = settle_orphaned_operations(runtime)
    warm_machines.remove_requests(runtime.host_id, WINDOW)
    try:
        repaired += settle_moves(runtime)
        runtime.arrivals.begin()
        repaired += reconcile_machines(runtime)
        repaired += reconcile_snapshots(runtime)
        repaired += apply_stale_policies(runtime.driver, runtime.host_id)
        runtime.guest_renewals.begin()
        runtime.flattening.begin()
        runtime.images.evict(in_use=digests_in_use(runtime.host_id))
        hosts.record_host_images(host_id=runtime.host_id, images=runtime.images.names())
    except BackendError as exc:
        logger.warning("reconcile failed: %s", exc)
    return repaired
