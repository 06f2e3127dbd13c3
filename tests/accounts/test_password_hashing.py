"""Passwords are hashed one at a time, over all processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from accounts import password_hashing
from common.errors import RateLimited


def test_one_password_is_hashed_at_a_time_and_few_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most = 0, 0
    lock, refused = threading.Lock(), []
    begin = threading.Barrier(24)

    def one(_: int) -> None:
        nonlocal inside, most
        begin.wait(10)
        try:
            with password_hashing.password_hashing():
                with lock:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.05)
                with lock:
                    inside -= 1
        except RateLimited as exc:
            refused.append(exc.headers["Retry-After"])

    with ThreadPoolExecutor(24) as pool:
        list(pool.map(one, range(24)))
    assert most == 1
    assert len(refused) >= 24 - 2 * password_hashing.MAX_WAITING
    assert set(refused) == {"2"}
    with password_hashing.password_hashing():
        pass


def _hold(ready: Any) -> None:
    with password_hashing.password_hashing():
        ready.set()
        time.sleep(60)


def test_processes_share_the_lock_and_a_killed_one_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    holder = context.Process(target=_hold, args=(ready,), daemon=True)
    holder.start()
    try:
        assert ready.wait(120)
        monkeypatch.setattr(password_hashing, "WAIT_SECONDS", 0.1)
        with pytest.raises(RateLimited), password_hashing.password_hashing():
            pass
        os.kill(int(holder.pid or 0), signal.SIGKILL)
        holder.join(20)
        with password_hashing.password_hashing():
            pass
    finally:
        holder.kill()
