"""Start of the worker `pages`: deploys of its predecessor need not wait until their heartbeat is old."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

from django.db import DatabaseError, connection

from pages.deploys import sweep
from pages.models import PageDeploy
from pages.publication import page_store
from pages.states import DeployState

logger = logging.getLogger(__name__)

LOCK = "worker.lock"


def settle_predecessor() -> int:
    """Queue again, or fail, every deploy that no process carries out; return how many.

    This process holds a lock until it ends. If another worker of the instance has the lock, its deploys are under way,
    and nothing is done. Call this before the first claim. If the database does not answer, `sweep` does the same later.
    """
    if not _lock_held(page_store().root / LOCK):
        return 0
    try:
        left = list(PageDeploy.objects.filter(state=DeployState.RUNNING)[: sweep.BATCH])
        for deploy in left:
            sweep.deploy_settle(deploy)
    except DatabaseError as exc:
        logger.warning("deploys of a predecessor are left to the sweep: %s", exc)
        return 0
    finally:
        connection.close()
    return len(left)


def _lock_held(path: Path) -> bool:
    """Take the lock; return False if another process has it.

    The descriptor is never closed: the kernel ends the lock with the process.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return False
    return True
