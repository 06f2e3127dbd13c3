"""A database of an earlier release, with a row in every table, is migrated and keeps what it had."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.conf import settings

from tests.run_extent import campaign_after

renamed = import_module("workspaces.migrations.0006_terms").Migration.operations[0]
# Against the first release: prices with another number of digits, sessions that a migration ends, a renamed column.
# Against the previous one: tokens of an hour that a migration ends.
CHANGED = {
    "first": [
        "credits_rate.credits",
        *(f"django_session.{name}" for name in ("expire_date", "session_data", "session_key")),
        f"workspaces_operation.{renamed.old_name}",
    ],
    "previous": [f"sandboxes_stafftoken.{name}" for name in ("expires_at", "sandbox_id", "token_hash", "user_id")],
}
# At least so many, each with a row.
TABLES = {"first": 23, "previous": 79}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    """The URL of an empty one, of the kind that the tests run on."""
    url = os.environ.get("PLATFORM_DATABASE_URL", "")
    if not url.startswith("postgres"):
        yield f"sqlite:///{tmp_path}/earlier.sqlite3"
        return
    with psycopg.connect(url, autocommit=True) as server:
        server.execute("CREATE DATABASE earlier_release")
        yield urlsplit(url)._replace(path="/earlier_release").geturl()
        server.execute("DROP DATABASE earlier_release WITH (FORCE)")


def migrated(release: str, database: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.upgraded_database", release],
        env={
            **os.environ,
            "PLATFORM_DATABASE_URL": database,
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


@pytest.mark.rows
@pytest.mark.parametrize("release", campaign_after(1, ["previous", "first"]))
def test_an_earlier_release_is_migrated_with_what_it_had(release: str, database: str) -> None:
    report = migrated(release, database)
    empty = set(report["tables"]) - set(report["filled"])
    assert empty <= {"django_content_type", "auth_permission"}
    assert len(report["filled"]) >= TABLES[release]
    assert report["differences"] == CHANGED[release]
