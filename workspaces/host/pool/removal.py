"""Removing machines of the pool that are retired."""

from __future__ import annotations

import logging

from vmbackend.driver import Driver
from vmbackend.errors import BackendError
from workspaces import warm_machines
from workspaces.models import WarmMachine
from workspaces.models.warm_machine import WarmState

logger = logging.getLogger(__name__)


def remove_retired(driver: Driver, host_id: str) -> int:
    """Remove the retired machines of this host, then their rows. Return how many.

    Several threads may do so at once, also while another one makes the machine: its next call of the driver fails then.
    What cannot be removed is tried again in the next round.
    """
    removed = 0
    retired = WarmMachine.objects.filter(host_id=host_id, state=WarmState.RETIRING)
    for key in list(retired.values_list("pk", flat=True)):
        try:
            driver.delete(key)
        except BackendError as exc:
            logger.warning("the warm machine %s could not be removed: %s", key, exc.message)
            continue
        warm_machines.delete_retired(key)
        removed += 1
    return removed


def give_back_memory(driver: Driver, host_id: str) -> bool:
    """Remove all warm machines of this host, whose memory a workspace needs. Return whether there was one."""
    warm_machines.retire_machines(host_id)
    return remove_retired(driver, host_id) > 0
