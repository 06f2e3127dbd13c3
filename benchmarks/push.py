"""Notifications to 500 browsers a second, whose push service answers after 50 ms, beside bare httpx in as many threads;
and the threads of the process that answers while requests wait for their counts.

    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.push [--devices 500]

A notification is handed out, encrypted for its browser, signed, sent over a connection of its own, and counted in its
row. bare httpx posts as many bytes: with a connection for each request (the baseline, as endpoints are places of users,
each its own), and with connections that it keeps.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx

from benchmarks.common import show
from benchmarks.delivery import prepare, receiver

if TYPE_CHECKING:
    from notifications.sends.dispatcher import PushDispatcher
    from notifications.tokens import SendTokenHolder

# An account that is alone has half of the threads.
THREADS = 128
OF_ACCOUNT = THREADS // 2
WAITING = 40


def holder_with_devices(base: str, devices: int) -> SendTokenHolder:
    from accounts.services import account_create
    from notifications.models import SendToken
    from notifications.tokens import SendTokenHolder
    from tests.notifications.browsers import Subscriber
    from tests.notifications.rows import web_device

    account = account_create(name="bench", plan="pro")[0]
    for number in range(devices):
        web_device(account, f"d{number}", Subscriber(f"{base}/push/{number}"))
    return SendTokenHolder(SendToken(pk=1, account=account, workspace_id="ws_2kq7aaaaaaaaaaaa", metadata={}))


@contextmanager
def sending() -> Iterator[PushDispatcher]:
    from notifications.process import push_providers
    from notifications.sends.dispatcher import PushDispatcher

    made = PushDispatcher(THREADS, push_providers())
    made.start()
    yield made
    made.stop(seconds=20)


def rate_of_sends(dispatcher: PushDispatcher, holder: SendTokenHolder, devices: int) -> float:
    """Devices a second, from the row of the send to the commit that ends it."""
    from notifications.content import Content
    from notifications.models import Send, SendState
    from notifications.sends.queue import send_create

    begun = time.perf_counter()
    made = send_create(holder=holder, content=Content("Built", "All is well. " * 20, {"n": "1"}))
    dispatcher.wake()
    while (row := Send.objects.defer("content").get(pk=made.pk)).state != SendState.ENDED:
        time.sleep(0.01)
    seconds = time.perf_counter() - begun
    if row.delivered != devices:
        raise SystemExit(f"{row.delivered} of {devices} were delivered: {row.errors}")
    return devices / seconds


def rate_of_httpx(url: str, devices: int, *, keeps: bool) -> float:
    left = iter(range(devices))
    limits = httpx.Limits() if keeps else httpx.Limits(max_keepalive_connections=0)

    def work(client: httpx.Client) -> None:
        for number in left:
            client.post(f"{url}/push/{number}", content=b"x" * 450).raise_for_status()

    # Making a client takes longer than many requests, so they are there before the time runs.
    clients = [httpx.Client(trust_env=False, limits=limits, verify=False) for _ in range(OF_ACCOUNT)]
    begun = time.perf_counter()
    with ThreadPoolExecutor(OF_ACCOUNT) as pool:
        list(pool.map(work, clients))
    seconds = time.perf_counter() - begun
    for client in clients:
        client.close()
    return devices / seconds


def compare_with_httpx(base: str, devices: int, rounds: int) -> None:
    holder = holder_with_devices(base, devices)
    ours, bare, kept = [], [], []
    with sending() as dispatcher:
        rate_of_sends(dispatcher, holder, devices)  # what is loaded at the first send
        for _ in range(rounds):
            bare.append(rate_of_httpx(base, devices, keeps=False))
            ours.append(rate_of_sends(dispatcher, holder, devices))
            kept.append(rate_of_httpx(base, devices, keeps=True))
    bar = "at least 0.5 of bare httpx"
    show(f"devices, {OF_ACCOUNT} threads", ours, bare, unit="/s", bar=bar)
    show("beside kept connections", ours, kept, unit="/s", bar="for information")


def threads_of_waiting(devices: int, waiting: int) -> None:
    """So many requests wait at once, as in the api process: each has its own thread, and nothing else is started."""
    from django.db import connection

    from notifications.content import Content
    from notifications.sends import requests
    from notifications.tokens import SendTokenHolder

    requests.WAIT_SECONDS = 2.0
    before = set(threading.enumerate())
    (token,) = _tokens()

    def work(_: int) -> Any:
        try:
            return requests.send_and_wait(SendTokenHolder(token), Content("t", "b", {}))
        finally:
            connection.close()

    with ThreadPoolExecutor(waiting) as pool:
        found = [pool.submit(work, number) for number in range(waiting)]
        time.sleep(1)
        most = len(set(threading.enumerate()) - before)
        for each in found:
            count, tally = each.result()
            assert (count, tally.counted) == (devices, devices)
    print(f"  threads of {waiting} requests that wait for the counts of {devices} devices each: {most}")


def _tokens() -> list[Any]:
    from notifications.models import Device, SendToken

    account = Device.objects.select_related("account").first().account  # type: ignore[union-attr]
    return [SendToken(pk=1, account=account, workspace_id="ws_2kq7aaaaaaaaaaaa", metadata={})]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    state = tempfile.mkdtemp(prefix="mvmb-")
    try:
        with receiver("benchmarks.push_receiver") as base:
            prepare(state, base, "push")
            compare_with_httpx(base, options.devices, options.rounds)
            for waiting in (1, WAITING):
                threads_of_waiting(options.devices, waiting)
            print("  (bar: one for each, however many devices)")
    finally:
        shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    main()
