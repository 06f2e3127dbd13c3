"""Stopping every machine of a host that goes down on purpose (PLATFORM_STOP_VMS_ON_DOWN)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from django.db import connections

from vmbackend.driver import Driver
from vmbackend.errors import BackendError
from workspaces.audit import record
from workspaces.host.restarts import HOST_DOWN
from workspaces.models import Workspace
from workspaces.states import Status
from workspaces.transitions import TransitionLost, transition

AT_ONCE = 8
UP = frozenset({Status.RUNNING, Status.PAUSED})


def stop_all_machines(host: str, driver: Driver, grace: float) -> int:
    """Shut the host's running machines down, each at most `grace` seconds, then hard. Returns how many.

    If the process dies meanwhile, reconcile settles the rows by what the machines are then.
    """
    rows = list(Workspace.objects.filter(host_id=host, status__in=UP))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(partial(_stop, driver=driver, grace=grace), rows))


def _stop(row: Workspace, *, driver: Driver, grace: float) -> bool:
    try:
        # With the reason at once: a process that dies in here leaves a row that comes back with the host all the same.
        transition(row, Status.STOPPING, leaving=UP, last_exit_reason=HOST_DOWN)
        driver.shutdown(row.pk, grace)
        transition(row, Status.STOPPED, leaving=frozenset({Status.STOPPING}), started_at=None)
        record(row, "stopped", "The platform was shut down on this host.")
    except (TransitionLost, BackendError):
        return False
    finally:
        connections.close_all()
    return True
