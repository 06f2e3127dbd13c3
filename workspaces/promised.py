"""Promises of hosts: counters of their rows, which the database itself keeps equal to the rows of workspaces, and of
moves to these hosts.

Triggers change them in the statement that inserts, changes or deletes such a row. So they hold for each writer,
and nobody has to know which status the row had before. They run with the rights of the tables' owner: who may change a
workspace's row need not be allowed to change its host's. A change that moves nothing between the sums locks no host.

A transaction that changes a workspace's row may hold its host's row from then on. Who needs both locks the workspace
first, else two could wait for each other.

A host writes how its own moves end. A move that has ended stays so: live again it would take room of its target.

Addresses that a row gives up are recorded as the transaction commits (`workspaces.placement`), so that a process that
stands still before its commit does not shorten the time in which nobody gets them.
"""

from __future__ import annotations

import logging
from typing import Any

from django.db import connection, transaction

from common.counters import record_additions
from workspaces.counted import HOST_DRIFTS
from workspaces.states import NO_MACHINE, USES_RUNNING_POOL, Status

logger = logging.getLogger(__name__)

# How long nobody gets an address that a workspace gave up: edges of other hosts may have a route to it for a second.
HELD_SECONDS = 5


def _is_in(statuses: frozenset[Status]) -> str:
    return "{row}.status IN (" + ", ".join(f"'{status.value}'" for status in sorted(statuses)) + ")"


# Each counter of a host's row, and what one workspace adds to it.
SUMS = {
    "memory_promised_mb": f"({_is_in(USES_RUNNING_POOL)})::int * {{row}}.applied_memory_mb::bigint",
    "disk_promised_mb": f"(NOT {_is_in(NO_MACHINE)})::int * {{row}}.applied_disk_size_mb::bigint",
    "machines_running": f"({_is_in(USES_RUNNING_POOL)})::int",
    "machines_sleeping": f"({_is_in(frozenset({Status.SLEEPING}))})::int",
    "machines_stopped": f"({_is_in(frozenset({Status.STOPPED, Status.LOST}))})::int",
}


def _columns(template: str, row: str = "made") -> str:
    """Return a list of columns. `template` has {name} for the counter and {sum} for what `row` adds to it."""
    return ", ".join(template.format(name=name, sum=added.format(row=row)) for name, added in SUMS.items())


def _add(changes: str) -> str:
    """Return the statement that adds `changes`, a query with the columns `host_id` and the counters."""
    return f"""
    UPDATE vmbackend_host AS host SET {_columns("{name} = host.{name} + change.{name}")}
    FROM ({changes}) AS change
    WHERE host.id = change.host_id AND ({" OR ".join(f"change.{name} <> 0" for name in SUMS)});"""  # noqa: S608


_INSERTED = f"SELECT host_id, {_columns('sum({sum}) AS {name}')} FROM inserted AS made GROUP BY host_id"  # noqa: S608
_DELETED = f"SELECT host_id, {_columns('-sum({sum}) AS {name}')} FROM deleted AS made GROUP BY host_id"  # noqa: S608
_CHANGED = f"""
    SELECT host_id, {_columns("sum({name}) AS {name}")} FROM (
        SELECT OLD.host_id, {_columns("-({sum}) AS {name}", "OLD")}
        UNION ALL SELECT NEW.host_id, {_columns("{sum} AS {name}", "NEW")}
    ) AS parts GROUP BY host_id"""  # noqa: S608
# If a change is counted on two hosts, these are locked in one order: of two opposite moves at once neither waits for
# the other for ever. A creation that is tried again on another host counts there alone, whose row is locked already.
_IN_ORDER = f"""
    IF OLD.host_id <> NEW.host_id AND NOT {_is_in(NO_MACHINE).format(row="OLD")} THEN
        PERFORM 1 FROM vmbackend_host WHERE id IN (OLD.host_id, NEW.host_id) ORDER BY id FOR NO KEY UPDATE;
    END IF;"""
# What a live move needs of its target, as if the workspace were there.
_MOVE = """(SELECT {row}.target_id AS host_id, {row}.counts_as AS status, {row}.memory_mb AS applied_memory_mb,
    {row}.disk_mb AS applied_disk_size_mb WHERE {row}.state = 'live') AS made"""


def _of_move(row: str, sign: str) -> str:
    return f"SELECT host_id, {_columns(f'{sign}({{sum}}) AS {{name}}')} FROM {_MOVE.format(row=row)}"  # noqa: S608


_MOVED = f"""
    SELECT host_id, {_columns("sum({name}) AS {name}")} FROM (
        {_of_move("OLD", "-")} UNION ALL {_of_move("NEW", "")}
    ) AS parts GROUP BY host_id"""  # noqa: S608
# The workspace itself changes on its host in the same transaction, after this.
_BOTH_IN_ORDER = (
    "PERFORM 1 FROM vmbackend_host WHERE id IN (OLD.source_id, OLD.target_id) ORDER BY id FOR NO KEY UPDATE;"
)
_RELEASED = f"""
    INSERT INTO workspaces_releasedaddress (host_id, ip, held_until)
    SELECT id, OLD.ip, clock_timestamp() + interval '{HELD_SECONDS} seconds'
    FROM vmbackend_host WHERE id = OLD.host_id
    ON CONFLICT (host_id, ip) DO UPDATE SET held_until = EXCLUDED.held_until;"""  # noqa: S608
_FUNCTIONS = {
    "workspaces_promised_inserted": _add(_INSERTED),
    "workspaces_promised_deleted": _add(_DELETED),
    "workspaces_promised_changed": _IN_ORDER + _add(_CHANGED),
    "workspaces_address_released": _RELEASED,
    "workspaces_promised_move": f"""
    IF TG_OP = 'INSERT' THEN {_add(_of_move("NEW", ""))}
    ELSIF TG_OP = 'DELETE' THEN {_add(_of_move("OLD", "-"))}
    ELSE {_BOTH_IN_ORDER} {_add(_MOVED)}
    END IF;""",
    "workspaces_move_ended": """
    IF OLD.state <> 'live' OR NEW.state NOT IN ('committed', 'failed', 'cancelled')
       OR (NEW.state = 'committed' AND session_user ~ '^host_') THEN
        RAISE EXCEPTION 'a move ends once, and no host commits it' USING ERRCODE = 'insufficient_privilege';
    END IF;""",
}
# The schema is fixed: a table of the caller's own must not take the place of ours.
_FUNCTION = """
CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN {body}
    RETURN NULL;
END $$;
"""
_COUNTED = "{0}.host_id, {0}.status, {0}.applied_memory_mb, {0}.applied_disk_size_mb"
_TRIGGERS = f"""
CREATE TRIGGER promised_inserted AFTER INSERT ON workspaces_workspace REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION workspaces_promised_inserted();
CREATE TRIGGER promised_deleted AFTER DELETE ON workspaces_workspace REFERENCING OLD TABLE AS deleted
    FOR EACH STATEMENT EXECUTE FUNCTION workspaces_promised_deleted();
CREATE TRIGGER promised_changed AFTER UPDATE ON workspaces_workspace FOR EACH ROW
    WHEN (({_COUNTED.format("OLD")}) IS DISTINCT FROM ({_COUNTED.format("NEW")}))
    EXECUTE FUNCTION workspaces_promised_changed();
CREATE TRIGGER promised_move AFTER INSERT OR DELETE OR UPDATE OF state, target_id ON workspaces_move
    FOR EACH ROW EXECUTE FUNCTION workspaces_promised_move();
CREATE TRIGGER move_ended AFTER UPDATE OF state ON workspaces_move FOR EACH ROW
    WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION workspaces_move_ended();
CREATE CONSTRAINT TRIGGER address_changed AFTER UPDATE ON workspaces_workspace
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.ip IS NOT NULL AND (OLD.host_id, OLD.ip) IS DISTINCT FROM (NEW.host_id, NEW.ip))
    EXECUTE FUNCTION workspaces_address_released();
CREATE CONSTRAINT TRIGGER address_deleted AFTER DELETE ON workspaces_workspace
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.ip IS NOT NULL) EXECUTE FUNCTION workspaces_address_released();
"""


def create_triggers(apps: Any, schema_editor: Any) -> None:
    """Create the functions and their triggers. For migrations."""
    for name, body in _FUNCTIONS.items():
        schema_editor.execute(_FUNCTION.format(name=name, body=body))
    schema_editor.execute(_TRIGGERS)


def drop_triggers(apps: Any, schema_editor: Any) -> None:
    """Remove the functions and their triggers. For migrations."""
    for name in _FUNCTIONS:
        schema_editor.execute(f"DROP FUNCTION {name}() CASCADE")


_COUNTED_ROWS = """(
        SELECT host_id, status, applied_memory_mb, applied_disk_size_mb FROM workspaces_workspace
        UNION ALL SELECT target_id, counts_as, memory_mb, disk_mb FROM workspaces_move WHERE state = 'live'
    ) AS made"""
# One statement, so that counters and sums are of one moment.
_DRIFTED = f"""
    SELECT host.id, host.name, {_columns("host.{name} - COALESCE(sums.{name}, 0)")}
    FROM vmbackend_host AS host LEFT JOIN (
        SELECT host_id, {_columns("sum({sum}) AS {name}")} FROM {_COUNTED_ROWS} GROUP BY host_id
    ) AS sums ON sums.host_id = host.id
    WHERE ({_columns("host.{name}")}) IS DISTINCT FROM ({_columns("COALESCE(sums.{name}, 0)")})"""  # noqa: S608
_LOCK = "SELECT 1 FROM vmbackend_host WHERE id = %s FOR NO KEY UPDATE"
_REPAIR = f"""
    UPDATE vmbackend_host AS host SET {_columns("{name} = sums.{name}")} FROM (
        SELECT {_columns("COALESCE(sum({sum}), 0) AS {name}")} FROM {_COUNTED_ROWS} WHERE host_id = %s
    ) AS sums WHERE id = %s"""  # noqa: S608


def prove_promises() -> int:
    """Compare the counters of all hosts with the rows of their workspaces, and repair those that differ. Return how
    many hosts differed: none, unless somebody has changed rows with the triggers switched off.
    """
    with connection.cursor() as cursor:
        cursor.execute(_DRIFTED)
        drifted = cursor.fetchall()
    for host_id, name, *drifts in drifted:
        wrong = {counter: int(drift) for counter, drift in zip(SUMS, drifts, strict=True) if drift}
        logger.error("the counters of the host %s differed from its workspaces by %s", name, wrong)
        _repair(host_id)
    record_additions(HOST_DRIFTS.of(len(drifted), "repaired"))
    return len(drifted)


@transaction.atomic
def _repair(host_id: str) -> None:
    """Write the sums. Under the lock nobody has changed a counter and not ended; the next transaction adds to it."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, [host_id])
        cursor.execute(_REPAIR, [host_id, host_id])
