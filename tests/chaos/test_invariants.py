"""Each invariant finds a violation that is planted, and none in a world in which all is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.chaos.invariants import INVARIANTS, problems_of
from tests.chaos.ledger import WORDS, Arrived, Fact, Ledger
from tests.chaos.planted_pages import PAGE_PLANTED, right_pages
from tests.chaos.snapshot import Key, Live, Row, Sent, Snapshot
from tests.vm.onhost import RUNNING, wanted

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
ONE, TWO = "ws_aaaaaaaaaaaaaaaa", "ws_bbbbbbbbbbbbbbbb"
STRANGE = "ws_cccccccccccccccc"
NAME = f"{WORDS[0]}-name"


FACT = Fact(WORDS[0], "namespace.suspended", "team")
ARRIVED = Arrived(WORDS[0], "evt_1", "namespace.suspended", "team")
SENT = Sent("evt_1", "ac_1", "namespace.suspended", "team", "delivered", 1, None)


def row(key: str = ONE, **changes: object) -> Row:
    made = Row(key, "ac_1", NAME, "running", True, "10.1.0.2", "local", NAME, True, [], NOW - timedelta(hours=1))
    return made._replace(**changes)


def right() -> tuple[Snapshot, Ledger]:
    """One workspace that runs: its row, what it has on the host, and the request that made it."""
    ledger = Ledger({"ac_1": WORDS[0], "ac_2": WORDS[1]})
    creation = ledger.begin_creation(WORDS[0], "key", NAME)
    ledger.add_workspace(creation, ONE)
    ledger.acknowledged_facts.add(FACT)
    ledger.asked_facts.add(FACT)
    ledger.add_arrived(ARRIVED)
    found = Snapshot(
        NOW,
        rows=[row()],
        keys=[Key("ac_1", "key", ONE)],
        sent=[SENT],
        pages=right_pages(ledger),
        metered=frozenset({ONE}),
        counts={"ac_1": 1, "ac_2": 0},
        held={kind: frozenset({ONE}) if kind in RUNNING else frozenset() for kind in wanted([])},
        addresses=frozenset({"10.1.0.2"}),
        outward=frozenset({"10.1.0.2"}),
    )
    return with_rows(found, found.rows), ledger


def with_rows(snapshot: Snapshot, rows: list[Row]) -> Snapshot:
    """The rows, and what they want of the host."""
    network = {"allow_internet": True, "egress": []}
    shown = [{"id": row.id, "status": row.status, "ip": row.ip, "network": network} for row in rows]
    return replace(snapshot, rows=rows, wanted=wanted(shown))


def test_nothing_is_found_where_all_is_right() -> None:
    assert {name: found for name, found in problems_of(*right()).items() if found} == {}


def overdue(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, live=[Live("op_1", ONE, "stop", "running", NOW - timedelta(minutes=1))])


def in_between(state: Snapshot, ledger: Ledger) -> Snapshot:
    return with_rows(state, [row(status="stopping")])


def no_process(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, held={**state.held, "process": frozenset()})


def orphan_machine(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, held={**state.held, "process": frozenset({ONE, STRANGE})})


def orphan_tap(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, held={**state.held, "tap": frozenset({ONE, "mvtabcdef9"})})


def kept_memory(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, held={**state.held, "memory": frozenset({ONE})})


def two_machines(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, host_error="two machines run for it")


def ready_and_stopped(state: Snapshot, ledger: Ledger) -> Snapshot:
    return with_rows(state, [row(status="stopped")])


def orphan_process(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, orphan_processes=["api 17"])


def orphan_resolver(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, resolvers=frozenset({ONE}))


def missing_resolver(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, rows=[row(allow_internet=False, egress=["api.example.com"])])


def orphan_file(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, named_files={ONE: f"machines/{ONE}", STRANGE: f"libvirt/log/qemu/{STRANGE}.log"})


def temporary_file(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, temporary_files=[f"machines/{ONE}/data.new"])


def orphan_address(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, addresses=frozenset({"10.1.0.2", "10.1.0.3"}))


def wrong_outward(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, outward=frozenset())


def lasting_key(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, lasting_keys=[f"mvm:used:{STRANGE}"])


def shared_address(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, rows=[row(), row(TWO, name="other")])


def destroyed_with_address(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, rows=[row(status="destroyed")])


def stopped_without_place(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, rows=[row(status="stopped", ip=None, host=None)])


def key_answered_twice(state: Snapshot, ledger: Ledger) -> Snapshot:
    ledger.creations["key"].ids.add(TWO)
    return state


def name_made_twice(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, rows=[row(), row(TWO, ip="10.1.0.3")])


def key_forgotten(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, keys=[])


def not_asked_for(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, rows=[row(), row(TWO, name="tests-busybox", ip="10.1.0.3")])


def name_of_the_other_account(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, rows=[row(account_id="ac_2")])


def missing_workspace(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, rows=[])


def kept_after_deletion(state: Snapshot, ledger: Ledger) -> Snapshot:
    ledger.workspaces[ONE].may_vanish = ledger.workspaces[ONE].deleted = True
    return state


def back_after_deletion(state: Snapshot, ledger: Ledger) -> Snapshot:
    ledger.remove(ledger.workspaces[ONE])
    return state


def counted_too_many(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, counts={"ac_1": 1, "ac_2": 1})


def counted_too_few(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, counts={"ac_1": 0, "ac_2": 0})


def foreign_word(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, rows=[row(text=f'{NAME} {{"text": "{WORDS[1]}-1"}}')])


def not_metered(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, metered=frozenset())


def not_arrived(state: Snapshot, ledger: Ledger) -> Snapshot:
    ledger.arrived.clear()
    return state


def arrived_elsewhere(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, sent=[SENT._replace(account_id="ac_2")])


def delivery_given_up(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, sent=[SENT._replace(status="failed", attempts=10)])


def delivery_overdue(state: Snapshot, ledger: Ledger) -> Snapshot:
    due = NOW - timedelta(seconds=1)
    return replace(state, sent=[SENT._replace(status="pending", attempts=2, next_attempt_at=due)])


def delivery_never_tried(state: Snapshot, ledger: Ledger) -> Snapshot:
    due = NOW + timedelta(seconds=1)
    return replace(state, sent=[SENT._replace(status="pending", attempts=0, next_attempt_at=due)])


def without_delivery(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, sent=[SENT._replace(status="none", attempts=0)])


def fact_without_event(state: Snapshot, ledger: Ledger) -> Snapshot:
    ledger.arrived.clear()
    return replace(state, sent=[])


def acknowledged_event_lost(state: Snapshot, ledger: Ledger) -> Snapshot:
    ledger.acknowledged_events.add("evt_2")
    return state


def fact_announced_twice(state: Snapshot, ledger: Ledger) -> Snapshot:
    ledger.add_arrived(replace(ARRIVED, id="evt_2"))
    return state


def fact_not_asked_for(state: Snapshot, ledger: Ledger) -> Snapshot:
    ledger.add_arrived(replace(ARRIVED, id="evt_2", namespace="other"))
    return state


def broken_database(state: Snapshot, ledger: Ledger) -> Snapshot:
    return replace(state, database='heap tuple (0,1) lacks matching index tuple within index "workspace_list"')


Plant = Callable[[Snapshot, Ledger], Snapshot]
PLANTED: dict[str, list[Plant]] = {
    "no operation is past its deadline": [overdue],
    "no row is in between without an operation": [in_between],
    "every workspace comes to rest": [in_between],
    "rows and machines agree": [no_process, orphan_machine, orphan_tap, kept_memory, two_machines],
    "ready is what runs": [ready_and_stopped],
    "no orphan process": [orphan_process, orphan_resolver, missing_resolver],
    "no orphan file": [orphan_file, temporary_file],
    "no orphan network rule": [orphan_address, wrong_outward],
    "no orphan Redis key": [lasting_key],
    "no address held in vain": [shared_address, destroyed_with_address, stopped_without_place],
    "one workspace for each idempotency key": [key_answered_twice, name_made_twice, key_forgotten],
    "no workspace that no client asked for": [not_asked_for, name_of_the_other_account],
    "no acknowledged workspace is missing": [missing_workspace, kept_after_deletion, back_after_deletion],
    "workspaces are counted": [counted_too_many, counted_too_few],
    "no foreign word in a row": [foreign_word],
    "what runs is metered": [not_metered],
    "every event arrives": [not_arrived, arrived_elsewhere],
    "every delivery comes to its end": [delivery_given_up, delivery_overdue, delivery_never_tried, without_delivery],
    "every acknowledged fact is announced once": [
        fact_without_event,
        acknowledged_event_lost,
        fact_announced_twice,
        fact_not_asked_for,
    ],
    "the database is intact": [broken_database],
    **PAGE_PLANTED,
}


def test_every_invariant_has_a_planted_violation() -> None:
    assert PLANTED.keys() == INVARIANTS.keys()


@pytest.mark.parametrize(
    ("name", "plant"),
    [pytest.param(name, plant, id=plant.__name__) for name, all_ in PLANTED.items() for plant in all_],
)
def test_a_planted_violation_is_found(name: str, plant: Plant) -> None:
    snapshot, ledger = right()
    assert problems_of(plant(snapshot, ledger), ledger)[name]


def test_a_temporary_file_of_an_operation_under_way_is_no_orphan() -> None:
    snapshot, ledger = right()
    busy = replace(temporary_file(snapshot, ledger), live=[Live("op_1", ONE, "start", "running", NOW)])
    assert problems_of(busy, ledger)["no orphan file"] == []


def test_an_event_whose_third_attempt_comes_in_minutes_is_not_missing_yet() -> None:
    snapshot, ledger = right()
    ledger.arrived.clear()
    ledger.acknowledged_events.add(SENT.event_id)
    waiting = SENT._replace(status="pending", attempts=2, next_attempt_at=NOW + timedelta(minutes=4))
    found = problems_of(replace(snapshot, sent=[waiting]), ledger)
    assert {name: problems for name, problems in found.items() if problems} == {}
