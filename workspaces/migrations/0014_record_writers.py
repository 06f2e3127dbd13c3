"""On PostgreSQL every transaction that inserts metering records holds an advisory lock in shared mode, for which charging
waits before it determines how far it may read (workspaces/charging/services.py). Statement triggers run before the first
row gets its number.
"""

from django.db import migrations

# workspaces.charging.services.RECORD_WRITERS
LOCK = 7_308_604_897_068_083_058
CREATE = f"""
CREATE FUNCTION workspaces_meterrecord_lock() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared({LOCK});
    RETURN NULL;
END $$;
CREATE TRIGGER meterrecord_lock BEFORE INSERT ON workspaces_meterrecord
    FOR EACH STATEMENT EXECUTE FUNCTION workspaces_meterrecord_lock();
"""
DROP = """
DROP TRIGGER meterrecord_lock ON workspaces_meterrecord;
DROP FUNCTION workspaces_meterrecord_lock();
"""


def run_on_postgresql(statements):
    def run(apps, schema_editor):
        if schema_editor.connection.vendor == "postgresql":
            schema_editor.execute(statements)

    return run


class Migration(migrations.Migration):
    dependencies = [("workspaces", "0013_sandbox_list")]
    operations = [migrations.RunPython(run_on_postgresql(CREATE), run_on_postgresql(DROP))]
