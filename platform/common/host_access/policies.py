"""The grants and policies of `platform_host`, the role that has what all hosts may do: made by the owner of the tables.

The owner itself is subject to no policy, so that the control plane pays nothing. A fingerprint of what the database has
is kept with the table of hosts: if neither it nor the code has changed since, nothing is done.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from django.db import connection, transaction

from common.host_access.grants import ALL, ANY_ROW, GRANTS, Grant

GROUP = "platform_host"
_TABLES = "vmbackend_host"  # whose comment has the fingerprints
_POLICY = "host"

# Of every right and policy that the group has, in whichever order.
_STATE = f"""
SELECT md5(coalesce(string_agg(line, E'\\n' ORDER BY line), '')) FROM (
  SELECT format('%s %s %s', c.oid::regclass, a.privilege_type, a.is_grantable) AS line
  FROM pg_class c, aclexplode(c.relacl) a WHERE a.grantee = '{GROUP}'::regrole
  UNION ALL
  SELECT format('%s.%s %s', c.attrelid::regclass, c.attname, a.privilege_type)
  FROM pg_attribute c, aclexplode(c.attacl) a WHERE a.grantee = '{GROUP}'::regrole
  UNION ALL
  SELECT format('%s %s %s %s %s', p.polrelid::regclass, p.polname, p.polcmd, pg_get_expr(p.polqual, p.polrelid),
                pg_get_expr(p.polwithcheck, p.polrelid))
  FROM pg_policy p
  UNION ALL
  SELECT c.oid::regclass::text FROM pg_class c WHERE c.relrowsecurity
) AS lines
"""
_NOTED = f"SELECT obj_description('{_TABLES}'::regclass, 'pg_class')"


def apply_grants() -> bool:
    """Make what hosts may do what `grants` says. Return False if there is no group role, so that no host can join.

    Idempotent; a few milliseconds if nothing has changed.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [GROUP])
        if cursor.fetchone() is None:
            return False
        if _noted() != _fingerprint():
            _apply_all()
    return True


def _apply_all() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {GROUP}")
        cursor.execute("SELECT polname, polrelid::regclass::text FROM pg_policy")
        for policy, table in cursor.fetchall():
            cursor.execute(f'DROP POLICY "{policy}" ON {table}')
        cursor.execute(f"GRANT USAGE ON SCHEMA public TO {GROUP}")
        for grant in GRANTS:
            for statement in statements(grant):
                cursor.execute(statement)
        cursor.execute(f"COMMENT ON TABLE {_TABLES} IS '{_fingerprint()}'")


def statements(grant: Grant) -> Iterator[str]:
    """Return the statements that make a grant."""
    table = grant.table
    yield f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
    for right, columns in (("SELECT", grant.read), ("INSERT", grant.insert), ("UPDATE", grant.update)):
        if columns:
            named = "" if columns == ALL else f" ({', '.join(columns)})"
            yield f"GRANT {right}{named} ON {table} TO {GROUP}"
    if grant.delete:
        yield f"GRANT DELETE ON {table} TO {GROUP}"
    written = grant.written or grant.rows
    # A host that may read every row changes its own alone.
    changed = written if grant.rows == ANY_ROW else grant.rows
    seen = f"{grant.rows} OR {grant.seen}" if grant.seen else grant.rows
    yield _policy(table, "SELECT", f"USING ({seen})")
    yield _policy(table, "INSERT", f"WITH CHECK ({written})")
    yield _policy(table, "UPDATE", f"USING ({changed}) WITH CHECK ({written})")
    yield _policy(table, "DELETE", f"USING ({grant.removed or changed})")


def _policy(table: str, command: str, condition: str) -> str:
    return f"CREATE POLICY {_POLICY}_{command.lower()} ON {table} FOR {command} TO {GROUP} {condition}"


def _fingerprint() -> str:
    """Return what the code wants and what the database has, in one word."""
    wanted = "\n".join(line for grant in GRANTS for line in statements(grant))
    return f"{hashlib.md5(wanted.encode(), usedforsecurity=False).hexdigest()} {_one(_STATE)}"


def _noted() -> str | None:
    return _one(_NOTED)


def _one(query: str) -> str | None:
    with connection.cursor() as cursor:
        cursor.execute(query)
        found: tuple[str | None] = cursor.fetchone()
    return found[0]
