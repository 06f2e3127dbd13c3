"""Settings of the connections to PostgreSQL; without a server."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from psycopg_pool import ConnectionPool, PoolTimeout

from config.database import LOCK_SECONDS, LOST_SERVER, database

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
    options = database("postgresql://platform@/platform?host=/run/none")["OPTIONS"]["pool"]
    Server.back_at = time.monotonic() + AWAY_SECONDS
    with ConnectionPool(connection_class=Connection, open=True, **{**options, "timeout": 0.5}) as pool:  # type: ignore[type-var]
        while time.monotonic() < Server.back_at:
            with suppress(PoolTimeout):
                pool.putconn(pool.getconn())
        pool.putconn(pool.getconn(timeout=PATIENCE_SECONDS))


def test_a_server_that_is_lost_is_found_out_and_the_operator_says_how_soon() -> None:
    options = database("postgresql://platform@db/platform")["OPTIONS"]
    del options["pool"]
    assert options == LOST_SERVER
    found_out = options["keepalives_idle"] + options["keepalives_interval"] * options["keepalives_count"]
    assert max(found_out, options["tcp_user_timeout"] / 1000) + options["connect_timeout"] < 120
    given = database("postgresql://platform@db/platform?keepalives_idle=5&connect_timeout=3")["OPTIONS"]
    assert (given["keepalives_idle"], given["connect_timeout"], given["keepalives_count"]) == ("5", "3", 3)


@pytest.mark.parametrize("url", ["garbage", " ", "sqlite:///srv/db", "postgresql://h:port/n", "mysql://h/n"])
def test_an_address_that_is_none_is_a_message(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="PLATFORM_DATABASE_URL"):
        database(url)


def test_a_pool_that_is_no_number_is_a_message() -> None:
    with pytest.raises(ImproperlyConfigured, match="PLATFORM_DATABASE_URL"):
        database("postgresql:///n?pool_size=many")


POOL_SIZE = 'from config.settings import DATABASES; print(DATABASES["default"]["OPTIONS"]["pool"]["max_size"])'


@pytest.mark.parametrize(
    ("role", "options", "size"),
    [("api", "", 20), ("vmhost", "", 40), ("vmhost", "?pool_size=12", 12)],
)
def test_vmhost_has_a_connection_for_each_of_its_threads_unless_the_address_says_how_many(
    role: str, options: str, size: int
) -> None:
    environment = {
        **os.environ,
        "PLATFORM_ROLE": role,
        "PLATFORM_DATABASE_URL": f"postgresql:///name{options}",
        "PLATFORM_VMHOST_THREADS": "32",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-c", POOL_SIZE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert int(done.stdout) == size


LOCKS = 'from config.settings import DATABASES; print(DATABASES["default"]["OPTIONS"].get("options"))'


@pytest.mark.parametrize("role", ["api", "streams", "worker", "vmhost"])
def test_requests_wait_for_a_lock_for_less_time_than_others_wait_for_their_connection(role: str) -> None:
    environment = {**os.environ, "PLATFORM_ROLE": role, "PLATFORM_DATABASE_URL": "postgresql:///name"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", LOCKS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == ("-c lock_timeout=5s" if role in ("api", "streams") else "None")
    assert database("postgresql:///name")["OPTIONS"]["pool"]["timeout"] > LOCK_SECONDS["api"]


def test_a_process_of_few_threads_has_the_pool_of_all() -> None:
    assert database("postgresql:///name", threads=3)["OPTIONS"]["pool"]["max_size"] == 20
