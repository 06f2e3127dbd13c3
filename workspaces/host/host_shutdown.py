"""Stopping every machine of a host when the platform is shut down there (PLATFORM_STOP_VMS_ON_DOWN)."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from django.db import DatabaseError, connections, transaction

from vmbackend.driver import Driver
from vmbackend.errors import BackendError
from workspaces.audit import record_activity
from workspaces.models import Workspace
from workspaces.states import HOST_DOWN, Status
from workspaces.transitions import TransitionLost, transition

logger = logging.getLogger(__name__)

# Each thread waits for one machine; vmhost has 60 s more than the time of one of them (`supervise.processes`).
CONCURRENCY = 64
UP = frozenset({Status.RUNNING, Status.PAUSED})


def stop_all_machines(host: str, driver: Driver, grace: float) -> int:
    """Shut down the host's running machines; those that take longer than `grace` seconds are ended. Return how many.

    A machine that cannot be stopped is logged, and does not keep the others from it. If the process dies in between,
    reconcile settles the rows by the state of their machines.
    """
    rows = list(Workspace.objects.filter(host_id=host, status__in=UP))
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        return sum(pool.map(partial(_stop, driver=driver, grace=grace), rows))


def _stop(row: Workspace, *, driver: Driver, grace: float) -> bool:
    try:
        # With the reason in the same write: also after a death here the machine is restarted with the host.
        transition(row, Status.STOPPING, leaving=UP, last_exit_reason=HOST_DOWN)
        connections.close_all()  # a database has fewer connections than this has threads
        driver.shutdown(row.pk, grace)
        with transaction.atomic():
            transition(row, Status.STOPPED, leaving=frozenset({Status.STOPPING}), started_at=None)
            record_activity(row, "stopped", "The platform was shut down on this host.")
    except (TransitionLost, BackendError, DatabaseError) as exc:
        logger.error("%s was not stopped with its host: %s: %s", row.pk, type(exc).__name__, exc)
        return False
    finally:
        connections.close_all()
    return True
