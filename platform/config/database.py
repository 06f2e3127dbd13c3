"""The database setting: PostgreSQL, the instance's own by default, another by URL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

# Until a failed attempt to connect is given up; the next query begins another one. The pool doubles the wait between
# attempts, and queries would wait for the next of them as long as the server had been away, up to these seconds.
RECONNECT_SECONDS = 2.0
# The longest wait for a lock, by role. `hooks` and `push` have one writer, which must not wait for good. Requests that
# wait hold connections: a process that stands still in a transaction, with the rows of three accounts, would otherwise
# keep all requests of the host waiting. They are answered with 503; this is less than the pool's `timeout`, so that
# requests which wait for a connection get one.
LOCK_SECONDS = {"hooks": 5, "push": 5, "api": 5, "streams": 5}
# The fewest connections that a pool may grow to.
POOL_SIZE = 20
# Threads of vmhost, besides those of operations: events, heartbeat, samples, the writer of usage, the disk guard, the
# peers, the main thread; and one to spare.
VMHOST_THREADS = 8
# Options of libpq: within two minutes a statement fails if its server lost its power or its network, whatever the
# statement waited for. Without them it waits for the kernel's limits: a quarter of an hour, or two hours for an answer
# that never comes.
LOST_SERVER = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,  # milliseconds
}
# The database of an instance's own server; its role is called the same.
DATABASE_NAME = "platform"
# The role whose members are the roles of hosts: those may connect over a network.
HOSTS_GROUP = "platform_host"


def host_of_url(url: str) -> str | None:
    """Return the id of the host whose role a database's URL names; None: it is the instance's."""
    role = urlsplit(url).username or ""
    return role if re.fullmatch(r"host_[a-z2-7]{16}", role) else None


def private_url(state: Path) -> str:
    """Return the database of an instance's own server; `state` is its state folder under a path short enough for
    sockets.
    """
    return f"postgresql://{DATABASE_NAME}@/{DATABASE_NAME}?host={quote(f'{state}/postgres/data', safe='/')}"


def database(url: str, *, lock_seconds: int | None = None, threads: int = 0) -> dict[str, Any]:
    """Django's settings for `postgresql://user:password@host:port/name`.

    `postgresql:///name?host=/run/postgresql` reaches a Unix socket. `lock_seconds`: for how long a statement waits for
    a lock; None: as the server has it. `threads`: how many of this process may need a connection at the same time; the
    pool can have one for each, unless the URL has a `pool_size`. Raise ImproperlyConfigured.
    """
    try:
        if urlsplit(url).scheme in ("postgres", "postgresql"):
            return _postgresql(url, lock_seconds, max(POOL_SIZE, threads))
    except ValueError as error:  # of the port, the size of the pool
        raise ImproperlyConfigured(f"PLATFORM_DATABASE_URL: {error}") from error
    raise ImproperlyConfigured("PLATFORM_DATABASE_URL: use postgresql://...")


def _postgresql(url: str, lock_seconds: int | None, pool_size: int) -> dict[str, Any]:
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if lock_seconds is not None:
        query["options"] = f"{query.get('options', '')} -c lock_timeout={lock_seconds}s".strip()
    return {
        "ENGINE": "config.postgresql",
        "NAME": unquote(parts.path.lstrip("/")) or "platform",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": query.pop("host", parts.hostname or ""),
        "PORT": str(parts.port or query.pop("port", "")),
        # A pool instead of persistent connections, which leak under ASGI (docs/decisions/database.md).
        "CONN_MAX_AGE": 0,
        "OPTIONS": {
            "pool": {
                "min_size": 1,
                "max_size": int(query.pop("pool_size", pool_size)),
                "timeout": 10,
                "reconnect_timeout": RECONNECT_SECONDS,
            },
            **LOST_SERVER,
            **query,  # what the URL says wins
        },
    }
