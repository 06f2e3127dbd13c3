"""The steps of random histories of money (history.py): what may happen, each as often as it stands in STEPS."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.workspaces.charging.expected import STOP

MOST = 10**15  # 10,000,000 credits
small, any_amount = (
    st.integers(1, 500),
    st.one_of(st.integers(1, 500), st.integers(1, 500), st.integers(MOST - 3, MOST)),
)
places = st.integers(0, 3)
keys = st.sampled_from("abc")
# So many nanoseconds of CPU time cost half of the smallest amount by the first rates.
HALF = 18_000
used = st.tuples(
    st.integers(0, 300).map(lambda n: n * HALF),
    *[st.sampled_from([0, 0, 1, 500, 1_000, 10**6]) for _ in range(4)],
)

quotas = st.tuples(
    st.one_of(st.integers(0, 1500), st.integers(0, 75).map(lambda n: n * 20), st.just(MOST)),
    st.sampled_from([0, 0, 100, MOST]),
    st.sampled_from(["block", STOP]),
    st.sampled_from([[], [50], [80, 95], [95, 33.333, 80, 80], [100, 250]]),
)
services = st.sampled_from(["sandbox", "ai"])
units = st.sampled_from(["vcpu_hour", "gb_hour", "disk_gb", "network_gb"])


def steps(name: str, *arguments: Any) -> Any:
    return st.tuples(st.just(name), *arguments)


def sample_steps() -> Any:
    return steps(
        "sample",
        st.sampled_from([(0,), (1,), (2,), (0, 1), (0, 1, 2), (0, 1, 2)]),
        st.lists(used, min_size=1, max_size=3),
        st.sampled_from(["grow", "grow", "grow", "restart", "backwards"]),
        st.sampled_from([1000, 1000, 1000, 4500, 7000]),
    )


def tick_steps() -> Any:
    return steps("tick", st.sampled_from(["written", "written", "doubled", "late", "given up"]))


# Each as often as it stands here; of equal objects only one would count. Not as rules of their own, of which Hypothesis
# leaves most out of an example.
STEPS = st.one_of(
    steps("charge", places, any_amount),
    steps("charge_by_key", places, keys, st.integers(1, 3)),
    steps("charge_again_by_key", st.integers(0, 9)),
    steps("refund", places, any_amount),
    steps("hold", places, keys, any_amount, st.sampled_from([10, 900])),
    steps("hold", places, keys, small, st.sampled_from([10, 900])),
    steps("hold_many", places, st.lists(small, min_size=3, max_size=3)),
    steps("charge_up_to", places, st.integers(0, 1)),
    steps("set_and_charge_up_to", places, quotas, st.integers(0, 1)),
    steps("settle", places, keys, any_amount),
    steps("void", places, keys),
    steps("expire"),
    steps("set", places, quotas),
    steps("reset", places),
    steps("set_default", services, quotas, st.booleans()),
    steps("change_rate", units, st.sampled_from([0, 1, 10**8, 123_456_789]), st.sampled_from([-3600, 59, 61, 600])),
    steps("suspend_or_activate_by_hand"),
    steps("clock_is_set", st.sampled_from([1, 30, 61, 600, 3600, 86400, -1, -50])),
    *(sample_steps() for _ in range(6)),
    *(tick_steps() for _ in range(5)),
    steps("tick_that_dies", st.integers(0, 9)),
    steps("late_tick_arrives", st.integers(0, 5), st.booleans()),
    steps("vmhost_dies", st.booleans()),
    steps("tick_of_a_former_vmhost", st.lists(used, min_size=1, max_size=2), st.sampled_from(["grow", "restart"])),
    *(steps("charge_metered", st.integers(1, 2), st.sampled_from([0, 0, 600, 4000])) for _ in range(3)),
    *(steps("charge_metered_and_die", st.integers(0, 30)) for _ in range(2)),
)
