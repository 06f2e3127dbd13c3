"""A database for `benchmarks.admin`: rows of all that the admin lists, spread over owners, states and 90 days."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from benchmarks.admin_copies import Copies, Parents, digits, execute, keys_of, moment

HOSTS = 20


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows: workspaces and what each has some of; metering records; entries of the largest logs."""

    workspaces: int
    records: int
    activity: int


def fill(sizes: Sizes) -> None:
    """Fill an empty database. Constraints between tables are not checked; all hold but those of counters."""
    from console.summary import summary_take
    from tests.console.pages.sample import make_sample, make_trend
    from tests.workspaces.rows import make_host
    from vmbackend.models import Host

    make_sample(20)
    make_trend()
    for number in range(HOSTS):
        Host.objects.filter(pk=make_host(f"host-{number}").pk).update(id=f"host-{number}")
    _begin()
    owners = _Owners(sizes)
    owners.fill()
    _fill_machines(owners, sizes)
    _fill_money(owners, sizes)
    _fill_hooks(owners, sizes)
    _fill_sites(owners, sizes)
    _fill_tokens(owners, sizes)
    _end()
    summary_take()


def _begin() -> None:
    execute("SET session_replication_role = replica", "SET work_mem = '256MB'")


def _end() -> None:
    from django.db import connection

    execute("VACUUM (ANALYZE)")
    connection.close()


def _made(model: Any, count: int, *of: tuple[Parents, str], which: str = "1 = 1", **changed: str) -> Copies:
    copies = Copies(model, max(1, count), of, which, changed)
    copies.make()
    return copies


class _Owners:
    """Accounts, namespaces, workspaces."""

    def __init__(self, sizes: Sizes) -> None:
        self.count = max(150, sizes.workspaces // 50)
        self.workspace_count = sizes.workspaces

    def fill(self) -> None:
        from accounts.models import Account, Credential
        from namespaces.models import Namespace
        from workspaces.models import Workspace

        accounts = _made(Account, self.count, name="'Account ' || n.number")
        self.accounts = keys_of(accounts, "account_id")
        one, some = (self.accounts, "each"), (self.accounts, "skewed")
        _made(Namespace, self.count, one, which="is_default")
        more = {"slug": "'space-' || n.number", "is_default": "false", "name": "'Space ' || n.number"}
        namespaces = _made(Namespace, self.count, some, **more)
        self.namespaces = keys_of(namespaces, "namespace_id")
        _made(Credential, 2 * self.count, some, client_id="'client-' || n.number")
        workspaces = _made(
            Workspace, self.workspace_count, (self.namespaces, "skewed"), which="kind <> 'sandbox'", **_workspace()
        )
        self.workspaces = keys_of(workspaces, "workspace_id")
        self.sandbox_workspaces = keys_of(workspaces, "workspace_id", "sandboxes", "kind = 'sandbox'")
        execute(
            "UPDATE accounts_account SET workspace_count = (SELECT COUNT(*) FROM workspaces_workspace w"
            " WHERE w.account_id = accounts_account.id)"
        )


def _workspace() -> dict[str, str]:
    """Of 20: 5 run, 11 sleep, 3 are stopped, and few failed or are lost; one in five is a sandbox."""
    states = {0: "running", 1: "sleeping", 2: "stopped", 3: "sleeping"}
    cases = " ".join(f"WHEN {rest} THEN '{state}'" for rest, state in states.items())
    rare = "WHEN n.number % 200 = 7 THEN 'failed' WHEN n.number % 1000 = 11 THEN 'lost'"
    status = f"CASE {rare} WHEN n.number % 4 = 2 AND n.number % 20 > 11 THEN 'sleeping' ELSE "
    status += f"CASE n.number % 4 {cases} END END"
    address = "'10.' || (n.number / 65536) || '.' || (n.number / 256 % 256) || '.' || (n.number % 256)"
    return {
        "status": status,
        "ready": f"(({status}) = 'running')",
        "provisioning_state": "'ready'",
        "kind": "CASE WHEN n.number % 5 = 0 THEN 'sandbox' ELSE 'workspace' END",
        "name": "s.name || '-' || n.number",
        "slug": "'box-' || n.number",
        "host_id": f"'host-' || (n.number % {HOSTS})",
        "ip": f"CAST({address} AS inet)",
    }


def _fill_machines(owners: _Owners, sizes: Sizes) -> None:
    from sandboxes.models import Sandbox, SandboxEvent
    from staff.models import StaffEntry
    from workspaces.models import Activity, Metered, MeterRecord, Operation, PublicPort, Usage, WorkspaceHour

    count, boxes = sizes.workspaces, owners.workspaces
    some, one = (boxes, "skewed"), (boxes, "each")
    sandboxes = _made(
        Sandbox, owners.sandbox_workspaces.count, (owners.sandbox_workspaces, "each"),
        id="'sbx_' || substr(p0.workspace_id, 4)", token_hash="'token-' || n.number",
    )  # fmt: skip
    account = "(SELECT w.account_id FROM workspaces_workspace w WHERE w.id = p0.workspace_id)"
    _made(SandboxEvent, count, (keys_of(sandboxes, "sandbox_id"), "skewed"), account_id=account)
    _made(Operation, count * 97 // 100, some, which="state = 'succeeded'")
    _made(Operation, count * 3 // 100, some, which="state = 'failed'")
    live = {"created_at": "s.created_at", "queue": f"'host-' || (n.number % {HOSTS})"}
    _made(Operation, count // 500, one, which="state = 'running'", **live)
    _made(Activity, sizes.activity, some)
    staff = {"object_id": "p0.workspace_id", "submission": "''"}
    _made(StaffEntry, count, some, **staff)
    _made(PublicPort, count // 10, one, hash="'hash' || n.number")
    _made(Usage, count, one)
    metered = keys_of(_made(Metered, count, one), "metered_id")
    tick = f"n.ms * 1000 + n.number % {metered.count}"
    _made(MeterRecord, sizes.records, (metered, "skewed"), tick=tick)
    start = f"({int(time.time()) // 3600} - n.number % 72) * 3600"
    _made(WorkspaceHour, count * 7, (metered, "n.number / 72"), start=start)


def _fill_money(owners: _Owners, sizes: Sizes) -> None:
    from credits.models import Balance, Entry, Hold, LedgerCheck, QuotaDefault, Spending
    from workspaces.models import BillingCycle

    count = sizes.workspaces
    service = "CASE n.number % 3 WHEN 0 THEN 'sandbox' WHEN 1 THEN 'deployment' ELSE 'cdn' END"
    spaces = owners.namespaces
    made = _made(Balance, 3 * spaces.count, (spaces, "n.number / 3"), service=service)
    balances = keys_of(made, "balance_id")
    some = (balances, "skewed")
    _made(Entry, sizes.activity, some, key="NULL")
    day = "(current_date - CAST(n.number % 14 AS integer))"
    _made(Spending, 14 * balances.count, (balances, "n.number / 14"), day=day)
    _made(Hold, max(60, count // 100), some, key="'hold-' || n.number")
    _made(QuotaDefault, owners.accounts.count, (owners.accounts, "each"))
    _made(LedgerCheck, max(60, count // 250), night="NULL")
    _made(BillingCycle, max(60, count // 100))


def _fill_hooks(owners: _Owners, sizes: Sizes) -> None:
    from webhooks.models import Attempt, AuditEntry, Delivery, Event, Subscription

    spaces = (owners.namespaces, "skewed")
    hooks = keys_of(_made(Subscription, 2 * owners.count, spaces), "subscription_id")
    events = keys_of(_made(Event, sizes.activity, spaces, key="NULL"), "event_id")
    waiting = sizes.workspaces // 500
    some, one = (hooks, "skewed"), (events, "each")
    failed = sizes.activity // 50
    most = sizes.activity - failed - waiting
    _made(Delivery, most, one, some, which="status = 'delivered'")
    _made(Delivery, failed, (events, f"n.number + {most}"), some, which="status = 'failed'")
    due = {"status": "'pending'", "next_attempt_at": "s.created_at"}
    _made(Delivery, waiting, (events, f"n.number + {most + failed}"), some, which="status = 'delivered'", **due)
    deliveries = keys_of(Copies(Delivery, sizes.activity), "delivery_id")
    _made(Attempt, deliveries.count, (deliveries, "each"))
    _made(AuditEntry, sizes.workspaces, some)


def _fill_sites(owners: _Owners, sizes: Sizes) -> None:
    from cdn.models import File, FileEvent, NamespaceQuota, Permit, Pool, Template
    from certificates.models import Certificate
    from domains.models import CustomDomain, DomainName
    from pages.models import Page, PageDeploy, PageEvent, PageRelease

    count, spaces = sizes.workspaces, owners.namespaces
    pages = keys_of(_made(Page, 2 * owners.count, (spaces, "skewed"), slug="'page-' || n.number"), "page_id")
    some, one = (pages, "skewed"), (pages, "each")
    _made(PageRelease, count, some, number="n.number + 2")
    _made(PageDeploy, count, some)
    _made(PageEvent, count, some)
    name = "'d' || n.number || '.example.com'"
    domains = keys_of(_made(CustomDomain, pages.count, one, name=name, target_id="p0.page_id"), "domain_id")
    _made(DomainName, domains.count, (domains, "each"), name=name)
    cert = {"name": name, "owner": "p0.account_id", "account_id": "s.account_id"}
    _made(Certificate, domains.count, (domains, "each"), which="status = 'active'", **cert)
    _made(Pool, spaces.count, (spaces, "each"), owner="p0.namespace_id", which="kind = 'namespace'")
    _made(NamespaceQuota, spaces.count, (spaces, "each"))
    _made(Template, owners.count, (owners.accounts, "each"))
    files = keys_of(_made(File, count, (spaces, "skewed"), filename="'photo-' || n.number || '.jpg'"), "file_id")
    _made(Permit, files.count, (files, "each"), token_hash="'permit-' || n.number")
    _made(FileEvent, count, (files, "skewed"))


def _fill_tokens(owners: _Owners, sizes: Sizes) -> None:
    from assist.models import ApiKey, Call, DayCount, KeyEvent
    from namespaces.models import NamespaceActivity
    from notifications.models import Device, NotificationEvent, Send, SendToken

    count, boxes, accounts = sizes.workspaces, owners.workspaces, owners.accounts
    unique = f"'hash-' || {digits(9)}"
    ended = {"state": "'ended'", "content": "NULL", "delivered": "s.devices", "ended_at": moment("n.ms"), "claim": "''"}
    tokens = _made(SendToken, count // 10, (boxes, "skewed"), token_hash=unique)
    _made(Send, count, (keys_of(tokens, "token_id"), "skewed"), **ended)
    device = {"device_id": "'phone-' || n.number", "address_hash": unique}
    _made(Device, count // 10, (accounts, "skewed"), **device)
    _made(NotificationEvent, count, (accounts, "skewed"))
    keys = keys_of(_made(ApiKey, owners.count, (owners.namespaces, "skewed"), key_hash=unique), "key_id")
    _made(KeyEvent, count, (keys, "skewed"))
    day = "(current_date - CAST(n.number % 30 AS integer) - 1)"
    _made(DayCount, 30 * accounts.count, (accounts, "n.number / 30"), day=day)
    _made(Call, max(60, count // 500), (owners.namespaces, "skewed"))
    _made(NamespaceActivity, count, (owners.namespaces, "skewed"))
