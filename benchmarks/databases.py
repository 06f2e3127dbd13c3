"""The PostgreSQL of a benchmark: one of its own, whose commits are written to the disk, as in an instance.

With PLATFORM_DATABASE_URL set, that server instead; its role makes databases.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.database_server import TEMPLATE, URL, choose_server, ensure_server, is_own

ROOT = Path(__file__).resolve().parent.parent
_numbers = count(1)


def use_own_server() -> None:
    """Start a server that ends with this process, before Django's settings are read: PLATFORM_DATABASE_URL names its
    database, which has all migrations.
    """
    os.environ.setdefault("DURABLE", "1")
    choose_server()
    ensure_server()
    if not is_own():
        _migrate(os.environ[URL])


def new_database(name: str = "") -> str:
    """Return the URL of a database with all migrations, beside that of PLATFORM_DATABASE_URL; of a given name it may
    be there already.
    """
    use_own_server()
    name = name or f"bench_{os.getpid()}_{next(_numbers)}"
    url = urlsplit(os.environ[URL])._replace(path=f"/{name}").geturl()
    with psycopg.connect(os.environ[URL], autocommit=True) as server:
        if not server.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            server.execute(f"CREATE DATABASE {name}{f' TEMPLATE {TEMPLATE}' if is_own() else ''}".encode())
    if not is_own():
        _migrate(url)
    return url


def _migrate(url: str) -> None:
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
    environment = {**os.environ, **paths, URL: url, "PLATFORM_SECRET_KEY": "x" * 50}
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], env=environment, cwd=ROOT, check=True)
