"""Applying network policies to machines; in vmhost only."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from common.connections import release_connection
from vmbackend.driver import Driver
from vmbackend.errors import BackendError, MachineNotFound
from workspaces.host.machine_spec import network_policy
from workspaces.models import Workspace
from workspaces.models.workspace import POLICY_COLUMNS
from workspaces.rows import update_unless_changed

logger = logging.getLogger(__name__)

_locks = tuple(threading.Lock() for _ in range(64))


@contextmanager
def hold_current_policy(row: Workspace) -> Iterator[None]:
    """Refresh the row's policy columns; inside the block no other thread applies a policy to this machine.

    Each change of the row notifies the host once it is committed, so the last one to enter sees the last change.
    """
    release_connection()  # the wait for the block may be long; within it there are queries
    with _locks[hash(row.pk) % len(_locks)]:
        row.refresh_from_db(fields=POLICY_COLUMNS)
        yield


def mark_policy_applied(row: Workspace) -> None:
    """Record that the machine has the row's policy, unless the row has changed since it was read."""
    update_unless_changed(row, POLICY_COLUMNS, network_stale=False)


def apply_policy(driver: Driver, workspace_id: str, close: Collection[int] = ()) -> str:
    """Apply the row's policy and end connections to the ports in `close`. Return an empty text, or why it applies
    later.
    """
    row = Workspace.objects.filter(pk=workspace_id).first()
    if row is None:
        return "The workspace is deleted."
    try:
        with hold_current_policy(row):
            driver.set_network(row.pk, network_policy(row))
            mark_policy_applied(row)
        if close:
            driver.close_connections(row.pk, close)
    except Workspace.DoesNotExist:
        return "The workspace is deleted."
    except MachineNotFound:
        return "There is no machine yet; it applies when one is made."
    except BackendError as exc:
        logger.warning("the network policy of %s is not applied yet: %s", workspace_id, exc)
        return f"{exc.message} It is retried."
    return ""


def apply_stale_policies(driver: Driver, host: str) -> int:
    """Apply changes that this host missed or could not apply. Return how many it applied."""
    waiting = Workspace.objects.filter(host_id=host, network_stale=True).values_list("pk", flat=True)
    return sum(not apply_policy(driver, key) for key in list(waiting))
