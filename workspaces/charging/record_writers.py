"""Lock that tells charging whether a transaction that writes metering records has not ended yet.

A trigger takes it in shared mode for each transaction that inserts records; charging takes it exclusively before it
reads how far it may go (`workspaces.charging.services`). Statement triggers run before the first row gets its number.
It is not a lock of the table, which would wait for vacuums: these take minutes and give way only after a second.
"""

from __future__ import annotations

from typing import Any

RECORD_WRITERS = 7_308_604_897_068_083_058  # the key of an advisory lock
_CREATE = f"""
CREATE FUNCTION workspaces_meterrecord_lock() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared({RECORD_WRITERS});
    RETURN NULL;
END $$;
CREATE TRIGGER meterrecord_lock BEFORE INSERT ON workspaces_meterrecord
    FOR EACH STATEMENT EXECUTE FUNCTION workspaces_meterrecord_lock();
"""
_DROP = """
DROP TRIGGER meterrecord_lock ON workspaces_meterrecord;
DROP FUNCTION workspaces_meterrecord_lock();
"""


def create_lock(apps: Any, schema_editor: Any) -> None:
    """Create the function and its trigger. For migrations."""
    schema_editor.execute(_CREATE)


def drop_lock(apps: Any, schema_editor: Any) -> None:
    """Remove the trigger and its function. For migrations."""
    schema_editor.execute(_DROP)
