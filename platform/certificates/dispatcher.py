"""The dispatcher of certificates that are due: one thread of the process `pages`, and a few that carry out steps.

It uses threads of its own instead of Celery tasks: a step waits for a CA for seconds, and tasks of the queue must not
wait for each other that long. No step sleeps: the row stores the time of the next step. Several such processes share
the work by the rows' leases.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial

from cryptography.fernet import InvalidToken
from django.db import connections

from certificates import tokens
from certificates.leases import due_ids, limit_waits, owners_of
from certificates.steps import certificate_step
from common.work.dispatcher import Dispatcher, failure_log
from common.work.shares import Shares

logger = logging.getLogger(__name__)

# A step waits ten seconds for name servers that do not answer, and an account may have a hundred names with such ones:
# it has half of the threads at most.
THREADS = 4
PRUNE_SECONDS = 3600.0
CLOCK_SECONDS = 60.0


class CertificateDispatcher(Dispatcher[str]):
    """An outcome is the key of the row whose step has ended."""

    def __init__(self) -> None:
        super().__init__("certificates", THREADS)
        # Rows whose steps are carried out, and whose they count as.
        self._running: dict[str, str] = {}
        self._shares = Shares(THREADS)
        self._pruned = self._limited = -PRUNE_SECONDS

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    def run_pass(self) -> int:
        for key in self.ended_work():
            self._shares.end(self._running.pop(key))
        if not self.is_stopping:
            self._repeat_rare_work()
            self._begin_due()
        return 0

    def _repeat_rare_work(self) -> None:
        if time.monotonic() - self._pruned > PRUNE_SECONDS:
            self._pruned = time.monotonic()
            tokens.prune_tokens()
        if time.monotonic() - self._limited > CLOCK_SECONDS:
            self._limited = time.monotonic()
            limit_waits()

    def _begin_due(self) -> None:
        if self._shares.total >= THREADS:
            return
        due = due_ids(THREADS, without=[each for each in self._running.values() if not self._shares.has_place(each)])
        owners = owners_of(due)
        for key in due:
            # A name of no owner shares with none.
            account = owners.get(key) or key
            if key not in self._running and self._shares.has_place(account):
                self._shares.begin(account)
                self._running[key] = account
                self.begin(partial(_step, key))


def _step(key: str) -> str:
    try:
        certificate_step(key)
    except InvalidToken:
        logger.error("%s: its key cannot be read with the keys of this instance", key)
    except Exception as exc:
        failure_log(f"certificate {key}", exc)
    finally:
        with suppress(Exception):
            connections.close_all()
    return key
