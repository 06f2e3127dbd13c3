"""Settings of the connections to PostgreSQL; without a server."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from psycopg_pool import ConnectionPool, PoolTimeout

from config.database import database

AWAY_SECONDS = 3.3  # the pool's own attempts come after 1, 2, 4 seconds
PATIENCE_SECONDS = 2.0


class Server:
    """Stands for a server that is away for a while."""

    back_at = 0.0


class Connection:
    """What the pool needs of a connection."""

    def __init__(self) -> None:
        self.pgconn: Any = type("Raw", (), {"transaction_status": psycopg.pq.TransactionStatus.IDLE})
        self.closed = False

    @classmethod
    def connect(cls, *_: Any, **__: Any) -> Connection:
        if time.monotonic() < Server.back_at:
            raise psycopg.OperationalError("connection refused")
        return cls()

    def close(self) -> None:
        self.closed = True


def test_a_server_that_is_back_is_used_at_once_however_long_it_was_away() -> None:
    options = database("postgresql://platform@/platform?host=/run/none", persistent=False)["OPTIONS"]["pool"]
    Server.back_at = time.monotonic() + AWAY_SECONDS
    with ConnectionPool(connection_class=Connection, open=True, **{**options, "timeout": 0.5}) as pool:  # type: ignore[type-var]
        while time.monotonic() < Server.back_at:
            with suppress(PoolTimeout):
                pool.putconn(pool.getconn())
        pool.putconn(pool.getconn(timeout=PATIENCE_SECONDS))


@pytest.mark.parametrize("url", ["garbage", " ", "sqlite://", "sqlite:///", "postgresql://h:port/n", "mysql://h/n"])
def test_an_address_that_is_none_is_a_message(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="PLATFORM_DATABASE_URL"):
        database(url, persistent=False)


def test_a_pool_that_is_no_number_is_a_message() -> None:
    with pytest.raises(ImproperlyConfigured, match="PLATFORM_DATABASE_URL"):
        database("postgresql:///n?pool_size=many", persistent=False)
