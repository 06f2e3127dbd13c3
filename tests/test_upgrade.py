"""A database of an earlier release, with a row in every table, is migrated and keeps what it had."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.conf import settings

from tests.database_server import URL
from tests.upgraded_database import RELEASES

# What migrations since a release change on purpose: `table` or `table.column`.
CHANGED: dict[str, list[str]] = {"0.1.0": []}
# At least so many, each with a row.
TABLES = {"0.1.0": 79}


@pytest.fixture
def database(database_server: None) -> Iterator[str]:
    """The URL of an empty one."""
    url, name = os.environ[URL], f"earlier_{secrets.token_hex(4)}"
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}".encode())
        yield urlsplit(url)._replace(path=f"/{name}").geturl()
        server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def migrated(release: str, database: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.upgraded_database", release],
        env={
            **os.environ,
            URL: database,
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "PYTHONPATH": f"{settings.ROOT}:{settings.ROOT}/platform",
        },
        cwd=settings.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("release", RELEASES)
def test_an_earlier_release_is_migrated_with_what_it_had(release: str, database: str) -> None:
    report = migrated(release, database)
    empty = set(report["tables"]) - set(report["filled"])
    assert empty <= {"django_content_type", "auth_permission"}
    assert len(report["filled"]) >= TABLES[release]
    assert report["differences"] == CHANGED[release]
