"""Which subscriptions get the free threads."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhooks.sharing import LONG_SECONDS, MOST_OF_SUBSCRIPTION, DueSubscription, InFlight, threads_share


def due(account: str, *, count: int = 1, is_proven: bool = True, at: int = 0) -> list[DueSubscription]:
    return [DueSubscription(f"{account}-{number}", account, is_proven, at) for number in range(count)]


def begin(in_flight: InFlight, subscriptions: list[DueSubscription]) -> dict[str, int]:
    shares = dict(threads_share(subscriptions, in_flight))
    for each in subscriptions:
        for _ in range(shares.get(each.id, 0)):
            in_flight.attempt_began(each.id, each.account_id, is_proven=each.is_proven)
    return shares


def test_a_subscription_has_four_in_flight() -> None:
    in_flight = InFlight(128)
    assert begin(in_flight, due("a")) == {"a-0": 4}
    assert begin(in_flight, due("a")) == {}
    in_flight.attempt_ended("a-0", "a", is_proven=True)
    assert begin(in_flight, due("a")) == {"a-0": 1}


def test_receivers_that_take_long_leave_half_of_their_accounts_share_to_its_others() -> None:
    in_flight = InFlight(128)
    slow = due("a", count=8)
    assert begin(in_flight, slow) == {f"a-{number}": 2 for number in range(8)}
    assert begin(in_flight, slow) == {}
    good = [DueSubscription(f"a-good{number}", "a", True, 0) for number in range(2)]
    assert begin(in_flight, [*slow, *good]) == {"a-good0": 1, "a-good1": 1}


def test_an_account_has_a_quarter_of_the_threads() -> None:
    in_flight = InFlight(32)
    assert sum(begin(in_flight, due("a", count=10)).values()) == 8
    assert begin(in_flight, due("a", count=10)) == {}
    assert sum(begin(in_flight, due("b", count=10)).values()) == 8


def test_the_subscriptions_of_an_account_share_equally() -> None:
    assert begin(InFlight(32), due("a", count=8)) == {f"a-{number}": 1 for number in range(8)}
    assert begin(InFlight(64), due("a", count=4)) == {f"a-{number}": 2 for number in range(4)}
    assert begin(InFlight(64), due("a", count=2)) == {"a-0": 4, "a-1": 4}


def test_a_receiver_that_has_not_proven_that_it_answers_gets_one_attempt_at_a_time() -> None:
    assert begin(InFlight(32), due("a", is_proven=False)) == {"a-0": 1}


def test_receivers_that_have_not_proven_it_leave_half_of_the_threads_to_the_others() -> None:
    in_flight = InFlight(32)
    unproven = [each for account in range(10) for each in due(f"bad{account}", count=10, is_proven=False)]
    assert sum(begin(in_flight, unproven).values()) == 16
    assert begin(in_flight, unproven) == {}
    assert sum(begin(in_flight, due("good", count=10)).values()) == 8


def test_the_last_threads_go_to_the_account_that_waited() -> None:
    in_flight = InFlight(8)
    for account in ("a", "b", "c", "d"):
        begin(in_flight, due(account, count=2, at=9))
    assert in_flight.total == 8
    waiting = [each for account in ("a", "b", "c", "d", "e") for each in due(account)]
    in_flight.attempt_ended("a-0", "a", is_proven=True)
    assert begin(in_flight, waiting) == {"e-0": 1}, "a has the other one still"


def test_accounts_with_equally_many_take_turns() -> None:
    in_flight, waiting = InFlight(4), [each for account in "abcdef" for each in due(account)]
    served = sorted(begin(in_flight, waiting))
    for _ in range(8):
        oldest = served[-4]
        in_flight.attempt_ended(oldest, oldest[0], is_proven=True)
        served += begin(in_flight, waiting)
    assert Counter(served) == {f"{account}-0": 2 for account in "abcdef"}


class Scene:
    """Time in steps of a tenth of a second. Each receiver of the bad accounts hangs for 15 s, and has always proven
    itself before; the good one takes a tenth. `arrival`: seconds from one bad account to the next.
    """

    def __init__(self, threads: int, bad: int, arrival: float) -> None:
        self.in_flight, self.bad, self.arrival = InFlight(threads), bad, arrival
        self.ends: list[tuple[float, DueSubscription, float]] = []

    def waits_of_good(self, seconds: int) -> list[float]:
        """How long each event of the good receiver waits; it has two in a second."""
        waiting: list[float] = []
        waits: list[float] = []
        for step in range(seconds * 10):
            now = step / 10
            self._end(now)
            if step % 5 == 0:
                waiting.append(now)
            rows = [each for number in range(self.bad) if number * self.arrival <= now for each in self._due(number)]
            for _ in range(self._begin([*rows, *due("good", count=bool(waiting))], now, len(waiting))):
                waits.append(now - waiting.pop(0))
            assert self.in_flight.total <= 2 * self.in_flight.threads
        return [*waits, *(seconds - since for since in waiting)]

    def _due(self, number: int) -> list[DueSubscription]:
        slow = self.in_flight.slow_subscriptions
        rows = due(f"bad{number}", count=10)
        return [replace(each, is_proven=each.id not in slow) for each in rows]

    def _begin(self, rows: list[DueSubscription], now: float, due_of_good: int) -> int:
        """How many of the good one."""
        by_id, shares = {each.id: each for each in rows}, dict(threads_share(rows, self.in_flight))
        of_good = shares["good-0"] = min(shares.get("good-0", 0), due_of_good)
        for each in [by_id[key] for key, count in shares.items() for _ in range(count)]:
            self.in_flight.attempt_began(each.id, each.account_id, is_proven=each.is_proven)
            self.ends.append((now + (0.1 if each.account_id == "good" else 15), each, now))
        return of_good

    def _end(self, now: float) -> None:
        self.in_flight.now = now
        for end in [each for each in self.ends if each[0] <= now]:
            self.ends.remove(end)
            _, one, began = end
            self.in_flight.attempt_ended(one.id, one.account_id, is_proven=one.is_proven, began=began)


@pytest.mark.parametrize("threads", [32, 128])
@pytest.mark.parametrize("bad", [4, 8, 20])
@pytest.mark.parametrize("arrival", [0, 0.1, 0.6, 1])
def test_a_good_receiver_waits_for_no_accounts_that_hang(threads: int, bad: int, arrival: float) -> None:
    waits = Scene(threads, bad, arrival).waits_of_good(40)
    assert len(waits) == 80
    assert max(waits) <= 1


def test_an_attempt_that_takes_long_leaves_its_thread() -> None:
    in_flight = InFlight(32)
    for number in range(4):
        begin(in_flight, due(f"bad{number}", count=10))
    assert (in_flight.total, in_flight.free) == (32, 0)
    assert begin(in_flight, due("good")) == {}
    assert in_flight.seconds_to_wait == LONG_SECONDS
    in_flight.now = LONG_SECONDS
    assert (in_flight.long, in_flight.free, in_flight.seconds_to_wait) == (32, 16, None)
    assert begin(in_flight, due("good")) == {"good-0": 1}
    assert len(in_flight.slow_subscriptions) == 32


@given(
    threads=st.integers(4, 64),
    subscriptions=st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 9), st.booleans(), st.integers(0, 3)),
        unique_by=lambda each: each[:2],
        max_size=80,
    ),
    ends=st.lists(st.integers(0, 1000), max_size=40),
)
def test_no_limit_is_passed_and_no_thread_idles_that_could_work(
    threads: int, subscriptions: list[tuple[str, int, bool, int]], ends: list[int]
) -> None:
    rows = [
        DueSubscription(f"{account}-{number}", account, proven, at) for account, number, proven, at in subscriptions
    ]
    by_id = {each.id: each for each in rows}
    in_flight = InFlight(threads)
    for end in [None, *ends]:
        if end is not None and in_flight.total:
            key = sorted(in_flight.of_subscription.elements())[end % in_flight.total]
            in_flight.attempt_ended(key, by_id[key].account_id, is_proven=by_id[key].is_proven)
        begin(in_flight, rows)
        assert in_flight.total <= threads
        assert all(count <= max(1, threads // 4) for count in in_flight.accounts.of_account.values())
        for key, count in in_flight.of_subscription.items():
            assert count <= (MOST_OF_SUBSCRIPTION if by_id[key].is_proven else 1)
        assert in_flight.unproven == sum(not by_id[key].is_proven for key in in_flight.of_subscription.elements())
        assert in_flight.unproven <= threads // 2
        assert threads_share(rows, in_flight) == {}
