"""What the database, the host and Redis hold at one moment, read without the platform's own code."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psycopg
import redis

from tests.chaos.page_snapshot import PagesState, pages_state
from tests.chaos.processes import orphan_processes
from tests.vm.instances import TestInstance
from tests.vm.onhost import on_host, outward, resolvers, wanted

WORKSPACE_ID = re.compile(r"ws_[a-z2-7]{16}")
# Written aside and renamed; after its writer's death the next one removes it.
TEMPORARY = re.compile(r"\.(new|tmp|part)$|\.partial")
# Of the state folder, these hold no machine's files.
NOT_SEARCHED = {"log", "cache", "static", "edge"}


class Row(NamedTuple):
    """A workspace's row."""

    id: str
    account_id: str
    name: str
    status: str
    ready: bool
    ip: str | None
    host: str | None
    text: str  # what its owner wrote into it
    allow_internet: bool
    egress: list[str]
    started_at: datetime | None = None


class Live(NamedTuple):
    """An operation that is queued or running."""

    id: str
    workspace_id: str
    kind: str
    state: str
    deadline: datetime


class Key(NamedTuple):
    account_id: str
    key: str
    workspace_id: str


class Sent(NamedTuple):
    """An event, and what has become of its delivery to the account's webhook."""

    event_id: str
    account_id: str
    type: str
    namespace: str
    status: str
    attempts: int
    next_attempt_at: datetime | None


@dataclass
class Snapshot:
    """`held`: kind of thing -> ids of workspaces that have one on the host; `wanted`: what the rows say."""

    now: datetime
    rows: list[Row] = field(default_factory=list)
    live: list[Live] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    metered: frozenset[str] = frozenset()
    counts: Mapping[str, int] = field(default_factory=dict)  # account id -> how many workspaces its row says it has
    pages: PagesState = field(default_factory=PagesState)
    held: Mapping[str, frozenset[str]] = field(default_factory=dict)
    wanted: Mapping[str, frozenset[str]] = field(default_factory=dict)
    orphan_processes: list[str] = field(default_factory=list)
    named_files: Mapping[str, str] = field(default_factory=dict)  # workspace id -> a path
    temporary_files: list[str] = field(default_factory=list)
    addresses: frozenset[str] = frozenset()  # of machines, in firewall and neighbour table
    outward: frozenset[str] = frozenset()
    resolvers: frozenset[str] = frozenset()
    lasting_keys: list[str] = field(default_factory=list)  # of Redis, without an expiry
    database: str = "ok"
    host_error: str = ""


def take_snapshot(instance: TestInstance) -> Snapshot:
    """Rows are read before the host: what a row has lost since is not reported as an orphan twice."""
    made = Snapshot(datetime.now(UTC))
    made.rows = [_row(found) for found in instance.query(_ROWS)]
    made.live = [_live(found) for found in instance.query(_LIVE)]
    made.keys = [Key(*found) for found in instance.query(_KEYS)]
    made.sent = [Sent(*found) for found in instance.query(_SENT)]
    made.metered = frozenset(found[0] for found in instance.query("SELECT workspace_id FROM workspaces_metered"))
    made.counts = dict(instance.query("SELECT id, workspace_count FROM accounts_account"))
    made.pages = pages_state(instance)
    made.database = _integrity(instance)
    shown = [_shown(row) for row in made.rows]
    made.wanted = wanted(shown)
    try:
        made.held = on_host(instance, {row.ip: row.id for row in made.rows if row.ip})
        made.outward, made.resolvers = outward(instance), resolvers(instance)
    except (AssertionError, subprocess.CalledProcessError) as error:
        made.host_error = str(error)
    made.orphan_processes = orphan_processes(instance)
    made.named_files, made.temporary_files = _files(instance.state)
    made.addresses = frozenset(_addresses(instance))
    made.lasting_keys = list(_lasting_keys(instance))
    return made


_ROWS = """SELECT id, account_id, name, status, ready, ip, host_id, metadata, allow_internet, egress, started_at
    FROM workspaces_workspace ORDER BY id"""
_LIVE = """SELECT id, workspace_id, kind, state, deadline_at FROM workspaces_operation
    WHERE state IN ('queued', 'running') ORDER BY id"""
_KEYS = "SELECT account_id, key, resource_id FROM accounts_idempotencykey ORDER BY key"

# An event without a delivery is none that anybody gets.
_SENT = """SELECT event.id, event.account_id, event.type, event.namespace_slug, COALESCE(delivery.status, 'none'),
    COALESCE(delivery.attempts, 0), delivery.next_attempt_at
    FROM webhooks_event AS event LEFT JOIN webhooks_delivery AS delivery ON delivery.event_id = event.id
    ORDER BY event.id"""


_CHECK_INDEXES = """SELECT bt_index_check(index.indexrelid, heapallindexed => true) FROM pg_index AS index
    JOIN pg_class AS relation ON relation.oid = index.indexrelid JOIN pg_am AS method ON method.oid = relation.relam
    WHERE method.amname = 'btree' AND relation.relpersistence = 'p' AND index.indisvalid"""


def _row(found: tuple[Any, ...]) -> Row:
    key, account, name, status, ready, ip, host, metadata, internet, egress, started = found
    address = str(ip) if ip else None
    shown = f"{name} {json.dumps(metadata)}"
    return Row(key, account, name, status, ready, address, host, shown, internet, egress, started)


def _live(found: tuple[Any, ...]) -> Live:
    return Live(*(*found[:-1], found[-1] or datetime.max.replace(tzinfo=UTC)))


def _shown(row: Row) -> dict[str, Any]:
    network = {"allow_internet": row.allow_internet, "egress": row.egress}
    return {"id": row.id, "status": row.status, "ip": row.ip, "network": network}


def _integrity(instance: TestInstance) -> str:
    """Each index against the rows of its table, as the server's superuser."""
    url = urlsplit(instance.settings.database_url)
    try:
        with psycopg.connect(url._replace(netloc="postgres@").geturl(), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS amcheck")
            connection.execute(_CHECK_INDEXES)
    except psycopg.Error as error:
        return str(error)
    return "ok"


def _files(state: Path) -> tuple[dict[str, str], list[str]]:
    """Paths that name a workspace, one for each, and temporary files."""
    named: dict[str, str] = {}
    temporary = []
    for folder, inner, names in os.walk(state):
        if Path(folder) == state:
            inner[:] = [name for name in inner if name not in NOT_SEARCHED]
        for name in [*inner, *names]:
            path = str((Path(folder) / name).relative_to(state))
            if found := WORKSPACE_ID.search(path):
                named.setdefault(found[0], path)
            if TEMPORARY.search(name):
                temporary.append(path)
    return named, sorted(temporary)


def _addresses(instance: TestInstance) -> Iterator[str]:
    """Machines' addresses in the instance's firewall tables, and in the neighbour table where they are permanent."""
    subnet = instance.settings.subnet
    own = {str(subnet.network_address), str(subnet.network_address + 1), str(subnet.broadcast_address)}
    shown = []
    for family in ("inet", "bridge"):
        command = ["nft", "-j", "list", "table", family, f"mvm_{instance.id}"]
        shown.append(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    command = ["ip", "-j", "neighbour", "show", "nud", "permanent"]
    shown.append(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    for text in set(re.findall(r"\b\d+\.\d+\.\d+\.\d+\b", " ".join(shown))):
        with suppress(AddressValueError):
            if IPv4Address(text) in subnet and text not in own:
                yield text


def _lasting_keys(instance: TestInstance) -> Iterator[str]:
    """Keys that name a workspace and do not expire."""
    client = redis.Redis.from_url(instance.settings.redis_url, socket_timeout=5, decode_responses=True)
    with suppress(redis.RedisError), client:
        for key in client.scan_iter(count=1000):
            if WORKSPACE_ID.search(key) and client.ttl(key) == -1:
                yield key
