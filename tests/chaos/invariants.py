"""What must hold at a quiet point: pure functions of a snapshot and the ledger, which yield what violates them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta

from tests.chaos.ledger import Ledger
from tests.chaos.page_invariants import PAGE_INVARIANTS
from tests.chaos.snapshot import Row, Sent, Snapshot
from tests.vm.client import IN_BETWEEN
from tests.vm.onhost import HOLDS

Invariant = Callable[[Snapshot, Ledger], Iterable[str]]
# The sweep that ends an overdue operation runs every second.
GRACE = timedelta(seconds=10)
# Ticks of 10 s, and the restart of a vmhost that died.
METERED_WITHIN = timedelta(seconds=45)


def no_operation_is_overdue(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    for live in snapshot.live:
        if snapshot.now > live.deadline + GRACE:
            yield f"{live.kind} of {live.workspace_id} is {live.state} since {live.deadline:%H:%M:%S}, its deadline"


def no_row_is_in_between_without_an_operation(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    busy = {live.workspace_id for live in snapshot.live}
    for row in snapshot.rows:
        if row.status in IN_BETWEEN and row.id not in busy:
            yield f"{row.id} is {row.status} and has no operation"


def everything_is_at_rest(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    """At the end of a quiet point's wait, which is longer than every deadline."""
    for row in snapshot.rows:
        if row.status in IN_BETWEEN:
            yield f"{row.id} is {row.status}"


def rows_and_machines_agree(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    if snapshot.host_error:
        yield snapshot.host_error
        return
    status = {row.id: row.status for row in snapshot.rows}
    for kind, expected in snapshot.wanted.items():
        held = snapshot.held.get(kind, frozenset())
        for key in sorted(expected - held):
            yield f"{key} is {status[key]} and has no {kind}"
        for key in sorted(held - expected):
            yield f"{key} has a {kind} and is {status.get(key, 'no workspace')}"


def ready_is_only_what_runs(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    for row in snapshot.rows:
        if row.ready != (row.status == "running") and row.status not in IN_BETWEEN:
            yield f"{row.id} is {row.status} and ready is {row.ready}"


def no_process_is_an_orphan(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    yield from snapshot.orphan_processes
    expected = {row.id for row in _with_firewall(snapshot) if _has_names(row)}
    for key in sorted(snapshot.resolvers ^ expected):
        yield f"the resolver of {key} {'runs' if key in snapshot.resolvers else 'is missing'}"


def no_file_is_an_orphan(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    known = {row.id for row in snapshot.rows}
    yield from (path for key, path in sorted(snapshot.named_files.items()) if key not in known)
    if not snapshot.live:
        yield from snapshot.temporary_files


def no_network_rule_is_an_orphan(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    held = {row.ip for row in _with_firewall(snapshot)}
    for address in sorted(snapshot.addresses - held):
        yield f"{address} is in the firewall or the neighbour table and belongs to no machine"
    reaching = {row.ip for row in _with_firewall(snapshot) if row.allow_internet or row.egress}
    for address in sorted(snapshot.outward ^ reaching):
        yield f"{address} {'may' if address in snapshot.outward else 'may not'} go out"


def no_redis_key_is_an_orphan(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    known = {row.id for row in snapshot.rows}
    for key in snapshot.lasting_keys:
        if not any(workspace_id in key for workspace_id in known):
            yield f"{key} never expires"


def no_address_is_held_in_vain(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    counts = Counter((row.host, row.ip) for row in snapshot.rows if row.ip)
    yield from (f"{count} rows hold {address}" for address, count in counts.items() if count > 1)
    for row in snapshot.rows:
        if row.status == "destroyed" and (row.ip or row.host):
            yield f"{row.id} is destroyed and holds {row.host} {row.ip}"
        if row.status in HOLDS and "definition" in HOLDS[row.status] and not (row.ip and row.host):
            yield f"{row.id} is {row.status} and has no place"


def one_workspace_for_each_key(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    for creation in ledger.creations.values():
        if len(creation.ids) > 1:
            yield f"{creation.key} was answered with {sorted(creation.ids)}"
    counts = Counter(row.name for row in snapshot.rows)
    yield from (f"{count} workspaces are named {name}" for name, count in counts.items() if count > 1)
    stored = {(ledger.accounts.get(key.account_id), key.key): key.workspace_id for key in snapshot.keys}
    for creation in ledger.creations.values():
        found = stored.get((creation.word, creation.key))
        if creation.ids & ledger.workspaces.keys() and found not in creation.ids:
            yield f"{creation.key} was answered with {sorted(creation.ids)} and is stored with {found}"


def no_workspace_was_not_asked_for(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    for row in snapshot.rows:
        word = ledger.accounts.get(row.account_id)
        if ledger.names.get(row.name) != word or word is None:
            yield f"{row.id} of {word}, named {row.name!r}"


def no_acknowledged_workspace_is_missing(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    present = {row.id for row in snapshot.rows}
    for key, tracked in ledger.workspaces.items():
        if key not in present and not tracked.may_vanish:
            yield f"{key} of {tracked.word}"
        if key in present and tracked.deleted:
            yield f"{key} is still there after its deletion"
    yield from (f"{key} came back after its deletion" for key in sorted(present & ledger.gone))


def workspaces_are_counted(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    """Limits of plans and the totals of lists are read from the account's row."""
    present = Counter(row.account_id for row in snapshot.rows)
    for account, count in snapshot.counts.items():
        if count != present[account]:
            yield f"{account} counts {count} workspaces and has {present[account]}"


def no_row_has_a_foreign_word(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    for row in snapshot.rows:
        for word in ledger.foreign_words(ledger.accounts.get(row.account_id, "")):
            if word in row.text:
                yield f"{row.id}: {row.text[:200]}"


def what_runs_is_metered(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    for row in snapshot.rows:
        runs_long = row.status == "running" and row.started_at and snapshot.now > row.started_at + METERED_WITHIN
        if runs_long and row.id not in snapshot.metered:
            yield f"{row.id} runs since {row.started_at:%H:%M:%S} and has no metering record"


def every_event_arrives(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    """What was written with its fact, which the row of the event is, reaches the receiver of the account."""
    for row in snapshot.sent:
        arrived = ledger.arrived.get(row.event_id)
        if arrived is None and not _is_waiting(row, snapshot):
            yield f"{row.type} {row.event_id} is {row.status} after {row.attempts} attempts and has not arrived"
        if arrived is not None and arrived.word != ledger.accounts.get(row.account_id):
            yield f"{row.type} {row.event_id} of {row.account_id} has arrived at {arrived.word}"


def every_delivery_comes_to_its_end(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    for row in snapshot.sent:
        if row.status != "delivered" and not _is_waiting(row, snapshot):
            yield f"{row.type} {row.event_id} is {row.status} after {row.attempts} attempts"


def every_acknowledged_fact_is_announced_once(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    waiting = [row for row in snapshot.sent if _is_waiting(row, snapshot)]
    late = {(ledger.accounts.get(row.account_id), row.type, row.namespace) for row in waiting}
    known = ledger.arrived.keys() | {row.event_id for row in waiting}
    yield from (f"{event} was acknowledged" for event in sorted(ledger.acknowledged_events - known))
    events = ledger.events_of()
    for fact in ledger.acknowledged_facts:
        if fact not in events and (fact.word, fact.type, fact.namespace) not in late:
            yield f"{fact} was acknowledged"
    for fact, ids in events.items():
        if fact.type.startswith("namespace.") and (len(ids) > 1 or fact not in ledger.asked_facts):
            yield f"{fact}, {'asked for' if fact in ledger.asked_facts else 'not asked for'}: {sorted(ids)}"


def _is_waiting(row: Sent, snapshot: Snapshot) -> bool:
    """Two attempts met faults: the third one comes after five minutes."""
    due = row.next_attempt_at
    return row.status == "pending" and row.attempts > 1 and due is not None and due > snapshot.now


def the_database_is_intact(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    if snapshot.database != "ok":
        yield snapshot.database


# Name, as the report has it -> invariant. The first ones may need some seconds after a fault; so may orphans.
INVARIANTS: dict[str, Invariant] = {
    "no operation is past its deadline": no_operation_is_overdue,
    "no row is in between without an operation": no_row_is_in_between_without_an_operation,
    "every workspace comes to rest": everything_is_at_rest,
    "rows and machines agree": rows_and_machines_agree,
    "ready is what runs": ready_is_only_what_runs,
    "no orphan process": no_process_is_an_orphan,
    "no orphan file": no_file_is_an_orphan,
    "no orphan network rule": no_network_rule_is_an_orphan,
    "no orphan Redis key": no_redis_key_is_an_orphan,
    "no address held in vain": no_address_is_held_in_vain,
    "one workspace for each idempotency key": one_workspace_for_each_key,
    "no workspace that no client asked for": no_workspace_was_not_asked_for,
    "no acknowledged workspace is missing": no_acknowledged_workspace_is_missing,
    "workspaces are counted": workspaces_are_counted,
    "no foreign word in a row": no_row_has_a_foreign_word,
    "what runs is metered": what_runs_is_metered,
    "every event arrives": every_event_arrives,
    "every delivery comes to its end": every_delivery_comes_to_its_end,
    "every acknowledged fact is announced once": every_acknowledged_fact_is_announced_once,
    "the database is intact": the_database_is_intact,
    **PAGE_INVARIANTS,
}


def problems_of(snapshot: Snapshot, ledger: Ledger) -> dict[str, list[str]]:
    """Invariant -> what violates it; empty lists for those that hold."""
    return {name: list(check(snapshot, ledger)) for name, check in INVARIANTS.items()}


def _with_firewall(snapshot: Snapshot) -> list[Row]:
    return [row for row in snapshot.rows if row.ip and "firewall" in HOLDS.get(row.status, ())]


def _has_names(row: Row) -> bool:
    return not row.allow_internet and any("/" not in entry for entry in row.egress)
