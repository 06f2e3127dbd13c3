"""Attacks with a host's own role in the database: everything of others, and everything that is nobody's, is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from common.host_access import policies
from common.host_access.grants import GRANTS
from common.host_access.roles import create_host_role, drop_host_role, list_host_roles
from tests.callers import Caller
from tests.host_access.confined_host import logged_in
from tests.webhooks.outbox import subscribe
from tests.workspaces.rows import make_workspace, snapshot_row
from vmbackend.models import Host, new_host_id
from workspaces.models import Metered, Operation, Usage, Workspace

pytestmark = pytest.mark.django_db(transaction=True)

# Each is refused with an error, or finds no row. {names} are of the rows below.
OTHERS_ROWS = {
    "reads a workspace": "SELECT id FROM workspaces_workspace WHERE id = '{theirs}'",
    "changes a workspace": "UPDATE workspaces_workspace SET status = 'lost' WHERE id = '{theirs}'",
    "deletes a workspace": "DELETE FROM workspaces_workspace WHERE id = '{theirs}'",
    "takes a workspace": "UPDATE workspaces_workspace SET host_id = '{me}' WHERE id = '{theirs}'",
    "gives a workspace away": "UPDATE workspaces_workspace SET host_id = '{other}' WHERE id = '{mine}'",
    "raises an epoch": "UPDATE workspaces_workspace SET epoch = 9 WHERE id = '{mine}'",
    "changes whose a workspace is": "UPDATE workspaces_workspace SET account_id = 'x' WHERE id = '{mine}'",
    "makes a workspace": "INSERT INTO workspaces_workspace (id, host_id) VALUES ('ws_x', '{me}')",
    "reads an operation": "SELECT params FROM workspaces_operation WHERE id = '{operation}'",
    "claims an operation": "UPDATE workspaces_operation SET claim = 'x', state = 'running' WHERE id = '{operation}'",
    "takes an operation": "UPDATE workspaces_operation SET queue = 'host.{me}' WHERE id = '{operation}'",
    "queues an operation for another": (
        "INSERT INTO workspaces_operation (id, workspace_id, kind, queue, params, state, step, cancel_requested, actor,"
        " error_code, error_message, created_at, notified_at, deadline_at, claim, claim_epoch, attempt) VALUES"
        " ('op_x', '{theirs}', 'stop', 'host.{me}', '{{}}', 'queued', '', false, '', '', '', now(), now(), now(), '',"
        " 0, 0)"
    ),
    "reads usage": "SELECT id FROM workspaces_usage WHERE workspace_id = '{theirs}'",
    "changes usage": "UPDATE workspaces_usage SET tick = 1 WHERE workspace_id = '{theirs}'",
    "reads who is charged": "SELECT id FROM workspaces_metered WHERE workspace_id = '{theirs}'",
    "charges another": (
        "INSERT INTO workspaces_metered (workspace_id, namespace_id, account_id, host_id, workspace_name,"
        " namespace_slug) VALUES ('{theirs}', '', '{account}', '{me}', '', '')"
    ),
    "charges for its own with another's account": (
        "INSERT INTO workspaces_metered (workspace_id, namespace_id, account_id, host_id, workspace_name,"
        " namespace_slug) VALUES ('{mine}', '', '{account}', '{me}', '', '')"
    ),
    "adds to another's records": (
        "INSERT INTO workspaces_meterrecord (metered_id, period_ms, tick, cpu_time_ns, memory_mb_ms, disk_bytes,"
        " network_bytes) VALUES ({metered}, 1, 1, 1, 1, 1, 1)"
    ),
    "reads records": "SELECT cpu_time_ns FROM workspaces_meterrecord",
    "reads a snapshot": "SELECT env FROM workspaces_snapshot WHERE id = '{snapshot}'",
    "deletes a snapshot": "DELETE FROM workspaces_snapshot WHERE id = '{snapshot}'",
    "reads an account": "SELECT name FROM accounts_account WHERE id = '{account}'",
    "locks an account": "SELECT 1 FROM accounts_account WHERE id = '{account}' FOR UPDATE",
    "changes a plan of its own account": "UPDATE accounts_account SET plan_id = 'pro'",
    "changes a plan": "UPDATE accounts_plan SET max_workspaces = 1000000",
    "reads a namespace": "SELECT id FROM namespaces_namespace WHERE account_id = '{account}'",
    "tells of another": (
        "INSERT INTO workspaces_activity (account_id, action, actor, detail, ip_address, user_agent, created_at,"
        " workspace_id) VALUES ('{account}', 'x', 'x', '', NULL, '', now(), '{theirs}')"
    ),
    "reads activity": "SELECT detail FROM workspaces_activity",
    "publishes for another": (
        "INSERT INTO webhooks_event (id, account_id, type, namespace_id, namespace_slug, data, created_at) VALUES"
        " ('evt_x', '{account}', 'vm.lost', '', '', '{{}}', now())"
    ),
    "publishes what is no machine's": (
        "INSERT INTO webhooks_event (id, account_id, type, namespace_id, namespace_slug, data, created_at) VALUES"
        " ('evt_x', '{own_account}', 'credits.depleted', '', '', '{{}}', now())"
    ),
    "reads an event": "SELECT data FROM webhooks_event",
    "reads webhooks": "SELECT id FROM webhooks_subscription WHERE account_id = '{account}'",
    "reads secrets of webhooks": "SELECT secret FROM webhooks_subscription",
    "reads addresses of webhooks": "SELECT url FROM webhooks_subscription",
    "reads deliveries": "SELECT id FROM webhooks_delivery",
    "changes another host": "UPDATE vmbackend_host SET problem = 'x' WHERE id = '{other}'",
    "gives itself another's network": "UPDATE vmbackend_host SET subnet = '10.201.0.0/20' WHERE id = '{me}'",
    "gives itself another address": "UPDATE vmbackend_host SET address = '10.0.0.1' WHERE id = '{me}'",
    "gives itself another key": "UPDATE vmbackend_host SET transfer_key = 'ssh-ed25519 AAAA' WHERE id = '{me}'",
    "gives another host its own key": "UPDATE vmbackend_host SET transfer_key = 'x' WHERE id = '{other}'",
    "lets itself be used": "UPDATE vmbackend_host SET state = 'active' WHERE id = '{me}'",
    "makes a host": "INSERT INTO vmbackend_host (id, name, subnet) VALUES ('host_x', 'x', '10.202.0.0/20')",
    "deletes a host": "DELETE FROM vmbackend_host WHERE id = '{other}'",
    "empties a table": "TRUNCATE workspaces_operation CASCADE",
}
BEYOND_TABLES = {
    "makes a table": "CREATE TABLE x (a int)",
    "makes a temporary table": "CREATE TEMPORARY TABLE x (a int)",
    "makes a schema": "CREATE SCHEMA x",
    "makes a function": "CREATE FUNCTION x() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "makes a database": "CREATE DATABASE x",
    "changes a table": "ALTER TABLE workspaces_workspace DISABLE ROW LEVEL SECURITY",
    "drops a policy": "DROP POLICY host_select ON workspaces_workspace",
    "makes a trigger": (
        "CREATE TRIGGER x BEFORE UPDATE ON workspaces_workspace FOR EACH ROW"
        " EXECUTE FUNCTION suppress_redundant_updates_trigger()"
    ),
    "makes an index": "CREATE INDEX x ON workspaces_workspace (id)",
    "turns triggers off": "SET session_replication_role = replica",
    "becomes the owner": "SET ROLE platform",
    "becomes the superuser": "SET ROLE postgres",
    "becomes another host": "SET ROLE {other}",
    "authorizes itself": "SET SESSION AUTHORIZATION platform",
    "makes a role": "CREATE ROLE x SUPERUSER",
    "raises itself": "ALTER ROLE {me} BYPASSRLS",
    "lifts its limit": "ALTER ROLE {me} CONNECTION LIMIT -1",
    "lifts its limit of files": "SET temp_file_limit = -1",
    "gets the owner's rights": "GRANT platform TO {me}",
    "runs a program": "COPY (SELECT 1) TO PROGRAM 'true'",
    "writes a file": "COPY (SELECT 1) TO '/tmp/x'",
    "reads a file": "SELECT pg_read_file('/etc/passwd')",
    "lists a folder": "SELECT pg_ls_dir('/')",
    "reads a file into a large object": "SELECT lo_import('/etc/passwd')",
    "writes a large object": "SELECT lo_export(1, '/tmp/x')",
    "makes a large object": "SELECT lo_from_bytea(0, 'x')",
    "ends a session": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'platform'",
    "reads what others ask": (
        "SELECT 1 FROM pg_stat_activity WHERE usename = 'platform' AND query <> '<insufficient privilege>'"
    ),
    "reads passwords": "SELECT rolpassword FROM pg_authid",
    "loads the server's settings": "SELECT pg_reload_conf()",
    "changes a setting": "ALTER SYSTEM SET work_mem = '1GB'",
    "makes a host's role": "SELECT host_roles.make('host_aaaaaaaaaaaaaaaa', 'x', 1)",
    "drops a host's role": "SELECT host_roles.drop('{other}')",
    "lists hosts' roles": "SELECT host_roles.names()",
    "makes an extension": "CREATE EXTENSION dblink",
    "listens to a publication": "CREATE PUBLICATION x FOR ALL TABLES",
}


@dataclass
class Scene:
    """Two hosts with a workspace each, of two accounts."""

    me: str
    names: dict[str, Any]


@pytest.fixture
def scene(api: Caller, stranger: Caller) -> Iterator[Scene]:
    policies.apply_grants()
    subscribe(api.account), subscribe(stranger.account)
    me, other = new_host_id(), new_host_id()
    for number, host in enumerate((me, other)):
        Host.objects.create(id=host, name=f"host-{number}", subnet=f"10.20{number}.0.0/20")
        create_host_role(host)
    mine = make_workspace(api.account, host_id=me)
    theirs = make_workspace(stranger.account, host_id=other)
    for row in (mine, theirs):
        Usage.objects.create(workspace=row)
    metered = Metered.objects.create(workspace_id=theirs.pk, account_id=stranger.account.pk, host_id=other)
    operation = Operation.objects.create(
        workspace=theirs, kind="stop", queue=f"host.{other}", deadline_at=theirs.created_at
    )
    snapshot = snapshot_row(theirs)
    snapshot.save()
    names = {"me": me, "other": other, "mine": mine.pk, "theirs": theirs.pk, "metered": metered.pk}
    names |= {"operation": operation.pk, "snapshot": snapshot.pk}
    yield Scene(me, names | {"account": stranger.account.pk, "own_account": api.account.pk})
    drop_host_role(me)
    drop_host_role(other)


def is_refused(made: Any, statement: str) -> bool:
    """Return whether a statement fails, or finds nothing."""
    with made.cursor() as cursor:
        try:
            cursor.execute(statement)
        except DatabaseError as exc:
            return not isinstance(exc.__cause__, psycopg.errors.SyntaxError)  # a typo here is no refusal
        return cursor.rowcount == 0 and not statement.startswith(("CREATE", "SET", "ALTER", "GRANT", "COPY"))


def test_of_others_it_can_do_nothing(scene: Scene) -> None:
    with logged_in(scene.me) as made:
        allowed = [name for name, text in OTHERS_ROWS.items() if not is_refused(made, text.format(**scene.names))]
    assert allowed == []


def test_it_gets_no_further_than_its_tables(scene: Scene) -> None:
    with logged_in(scene.me) as made:
        allowed = [name for name, text in BEYOND_TABLES.items() if not is_refused(made, text.format(**scene.names))]
    assert not allowed, allowed


def test_each_table_without_a_grant_is_closed(scene: Scene) -> None:
    granted = {grant.table for grant in GRANTS}
    with logged_in(scene.me) as made:
        tables = set(made.introspection.table_names())
        refused = {table for table in tables if is_refused(made, f"SELECT * FROM {table}")}
    assert granted <= {*tables}
    open_to_all = {"accounts_plan", "vmbackend_host", "namespaces_namespace"}
    assert tables - granted <= refused
    assert {"accounts_credential", "django_session", "auth_user", "credits_balance"} <= refused
    assert open_to_all <= tables - refused


def test_it_reads_and_changes_its_own(scene: Scene) -> None:
    with logged_in(scene.me):
        assert [row.pk for row in Workspace.objects.all()] == [scene.names["mine"]]
        assert Workspace.objects.update(status="lost") == 1
    assert Workspace.objects.get(pk=scene.names["theirs"]).status == "running"


@pytest.mark.parametrize("name", ["platform", "postgres", "host_x", "host_AAAAAAAAAAAAAAAA", 'host_a"; DROP', ""])
def test_the_functions_touch_no_other_role(scene: Scene, name: str) -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        create_host_role(name)
    if name in ("platform", "postgres"):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT host_roles.drop(%s)", [name])


def test_a_password_is_kept_as_a_verifier_and_replaced(scene: Scene) -> None:
    first, second = create_host_role(scene.me), create_host_role(scene.me)
    assert first != second
    assert {scene.me, scene.names["other"]} <= list_host_roles()


def test_a_dropped_role_loses_everything_at_once(scene: Scene) -> None:
    with logged_in(scene.me) as made:
        assert not is_refused(made, "SELECT 1 FROM workspaces_workspace")
        dropping = threading.Thread(target=drop_host_role, args=[scene.me])
        dropping.start()
        dropping.join()
        assert is_refused(made, "SELECT 1 FROM workspaces_workspace")
    assert scene.me not in list_host_roles()
    drop_host_role(scene.me)
    with pytest.raises(DatabaseError), logged_in(scene.me) as made, made.cursor():
        pass


def test_grants_are_made_once_and_mended(scene: Scene) -> None:
    with connection.cursor() as cursor:
        before = policies._noted()
        policies.apply_grants()
        assert policies._noted() == before == policies._fingerprint()
        cursor.execute("GRANT SELECT ON accounts_credential TO platform_host")
        policies.apply_grants()
        cursor.execute("SELECT has_table_privilege('platform_host', 'accounts_credential', 'SELECT')")
        assert cursor.fetchone() == (False,)
