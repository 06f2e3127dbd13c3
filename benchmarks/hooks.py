"""Deliveries of webhooks a second to a receiver on this host, beside the same bodies by bare httpx in as many threads;
the same with half of the subscriptions at a receiver that never answers; and how long one good receiver waits beside
twenty that never answer.

    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.hooks [--deliveries 4000]

bare httpx has a client for each thread, which keeps its connection; a delivery has a connection of its own, claims its
row, signs its body and writes what came of it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx

from benchmarks.common import percentile, show
from benchmarks.delivery import prepare, receiver
from benchmarks.hook_receiver import GOOD, HANG

if TYPE_CHECKING:
    from webhooks.dispatcher import WebhookDispatcher

THREADS = 64
ACCOUNTS, OF_ACCOUNT = 8, 3


def add_subscriptions(base: str, path: str, accounts: int, each: int) -> list[str]:
    """Of new accounts; the ids of the accounts."""
    from accounts.services import account_create
    from webhooks.models import Subscription

    made = [account_create(name=f"{path} {number}", plan="pro")[0] for number in range(accounts)]
    for account in made:
        for _ in range(each):
            secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
            Subscription.objects.create(account=account, url=base + path, host="127.0.0.1", events=["*"], secret=secret)
    return [account.pk for account in made]


def add_deliveries(accounts: Sequence[str], each: int) -> None:
    """So many events of each account, for all of its subscriptions."""
    from django.db import transaction

    from common.work.wakeups import ProcessWakeup
    from webhooks.events import NewEvent, publish_events

    ProcessWakeup.send = lambda self: None  # type: ignore[method-assign]
    data = {"namespace": "default", "workspace_id": "ws_2kq7aaaaaaaaaaaa", "credits_used": 1.25, "at": time.time()}
    for account in accounts:
        with transaction.atomic():
            publish_events([NewEvent(account, "", "default", "credits.usage", data) for _ in range(each)])


def clear_rows() -> None:
    from webhooks.models import Attempt, Delivery, Event, Subscription

    for model in (Attempt, Delivery, Event, Subscription):
        model.objects.all().delete()


def delivered() -> int:
    from webhooks.models import Delivery, DeliveryStatus

    return Delivery.objects.filter(status=DeliveryStatus.DELIVERED).count()


# Measured


@contextmanager
def sending(threads: int) -> Iterator[WebhookDispatcher]:
    from webhooks.dispatcher import WebhookDispatcher

    made = WebhookDispatcher(threads)
    yield made
    made.stop(seconds=20)


def rate_of_deliveries(count: int) -> float:
    """Deliveries a second, from the start of the dispatcher to the commit of the last."""
    with sending(THREADS) as dispatcher:
        begun = time.perf_counter()
        dispatcher.start()
        while (done := delivered()) < count:
            # Rarely asked near the end would be too late, often all the time would be a load.
            time.sleep(0.05 if count - done > 200 else 0.01)
        return count / (time.perf_counter() - begun)


def rate_of_httpx(url: str, count: int) -> float:
    from webhooks.models import Delivery

    body = json.dumps(Delivery.objects.select_related("event").first().event.data).encode()  # type: ignore[union-attr]
    body = b'{"id":"evt_2kq7aaaaaaaaaaaa","type":"credits.usage","event":"credits.usage","data":' + body + b"}"
    left = iter(range(count))

    def work(_: int) -> None:
        with httpx.Client(trust_env=False) as client:
            for _ in left:
                client.post(url, content=body, headers={"Content-Type": "application/json"}).raise_for_status()

    begun = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    return count / (time.perf_counter() - begun)


def compare_with_httpx(base: str, count: int, rounds: int) -> list[float]:
    ours, bare = [], []
    for _ in range(rounds):
        clear_rows()
        accounts = add_subscriptions(base, "/", ACCOUNTS, OF_ACCOUNT)
        add_deliveries(accounts, count // (ACCOUNTS * OF_ACCOUNT))
        bare.append(rate_of_httpx(base + "/", count))
        ours.append(rate_of_deliveries(count))
    show(f"deliveries, {THREADS} threads", ours, bare, unit="/s", bar="at least 0.4 of bare httpx")
    return ours


def compare_with_hanging(base: str, count: int, rounds: int, alone: Sequence[float]) -> None:
    """Half of each account's subscriptions hang, and none was sent to before; as many deliveries go to the others."""
    rates = []
    for _ in range(rounds):
        clear_rows()
        accounts = add_subscriptions(base, "/", ACCOUNTS, OF_ACCOUNT)
        _add_hanging(base, accounts, OF_ACCOUNT)
        add_deliveries(accounts, count // (ACCOUNTS * OF_ACCOUNT))
        rates.append(rate_of_deliveries(count))
    show("half of the receivers hang", rates, alone, unit="/s", bar="at least 0.7 of the same without them")


def _add_hanging(base: str, accounts: Sequence[str], each: int) -> None:
    from webhooks.models import Subscription

    for account in accounts:
        for _ in range(each):
            Subscription.objects.create(
                account_id=account, url=base + HANG, host="127.0.0.1", events=["*"], secret="whsec_c2VjcmV0"
            )


def wait_beside_hanging(base: str, seconds: float, accounts: int, each: int, *, are_proven: bool) -> None:
    """From the commit of an event to its arrival, with as many threads as by default. `are_proven`: what hangs has
    delivered before.
    """
    from django.conf import settings
    from django.utils import timezone

    from webhooks.models import Subscription

    clear_rows()
    hanging = add_subscriptions(base, HANG, accounts, each)
    if are_proven:
        Subscription.objects.update(last_triggered_at=timezone.now())
    (good,) = add_subscriptions(base, GOOD, 1, 1)
    add_deliveries(hanging, 800 // accounts)
    with sending(settings.ENV.webhook_threads) as dispatcher:
        dispatcher.start()
        sent = _publish_often(dispatcher.wake, lambda: add_deliveries([good], 1), seconds)
        waits = _arrivals(base, sent)
    if len(waits) < sent:
        raise SystemExit(f"only {len(waits)} of {sent} arrived")
    title = f"one good receiver, {each} of each of {accounts} accounts hang{' suddenly' if are_proven else ''}"
    print(f"  {title:<28} median {percentile(waits, 0.5) * 1000:.0f} ms   p99 {percentile(waits, 0.99) * 1000:.0f} ms")
    print(f"  of {sent} deliveries (bar: p99 below 2000 ms)")


def _publish_often(wake: Callable[[], None], publish: Callable[[], None], seconds: float) -> int:
    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        publish()
        wake()
        count += 1
        time.sleep(0.05)
    return count


def _arrivals(base: str, count: int) -> list[float]:
    waits: list[float] = []
    until = time.monotonic() + 30
    while len(waits) < count and time.monotonic() < until:
        time.sleep(0.2)
        waits = httpx.get(base + "/", trust_env=False).json()
    return waits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deliveries", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3, help="0: the waits alone")
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    # As many for each subscription, so that all of them can arrive.
    count = max(1, options.deliveries // (ACCOUNTS * OF_ACCOUNT)) * ACCOUNTS * OF_ACCOUNT
    state = tempfile.mkdtemp(prefix="mvmb-")
    try:
        with receiver("benchmarks.hook_receiver") as base:
            prepare(state, base, "hooks")
            if options.rounds:
                alone = compare_with_httpx(base, count, options.rounds)
                compare_with_hanging(base, count, options.rounds, alone)
            for accounts, each in ((4, 5), (4, 10), (8, 10), (20, 10)):
                for are_proven in (False, True):
                    wait_beside_hanging(base, options.seconds, accounts, each, are_proven=are_proven)
    finally:
        shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    main()
