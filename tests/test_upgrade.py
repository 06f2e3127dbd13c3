"""A database of an earlier release, with a row in every table, is migrated and keeps what it had."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings

from tests.database_server import URL, new_database
from tests.upgraded_database import RELEASES

# What migrations since a release change on purpose: `table` or `table.column`.
CHANGED: dict[str, list[str]] = {"0.1.0": []}
# At least so many, each with a row.
TABLES = {"0.1.0": 79}


@pytest.fixture
def database() -> Iterator[str]:
    with new_database() as url:
        yield url


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
