"""Installing what makes roles of hosts, as the superuser of the instance's own PostgreSQL.

On a server that the operator named its administrator does it, with what `manage.py host_roles_sql` prints.
"""

from __future__ import annotations

import hashlib

import psycopg

from common.host_access.roles import roles_sql
from config.env import Env
from supervise.postgres import SUPERUSER

_INSTALLED = "SELECT obj_description(to_regnamespace('host_roles'), 'pg_namespace')"


def install_role_functions(settings: Env) -> None:
    """Install the functions of this version, unless the server has them. The server runs. Raise psycopg.Error."""
    if not settings.has_own_server:
        return
    statements = roles_sql()
    digest = hashlib.sha256(statements.encode()).hexdigest()
    with psycopg.connect(settings.database_url, user=SUPERUSER, connect_timeout=10) as server:
        installed = server.execute(_INSTALLED.encode()).fetchone()
        if installed == (digest,):
            return
        server.execute(statements.encode())
        server.execute(f"COMMENT ON SCHEMA host_roles IS '{digest}'".encode())
