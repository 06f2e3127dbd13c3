"""The part of `benchmarks.admin` that has one database: fills it, then measures pages.

Reads lines of JSON, `[name, rendered]`, and answers each by one: queries, seconds by the clock and of processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("workspaces", "records", "activity"):
        parser.add_argument(f"--{name}", type=int, required=True)
    given = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django

    django.setup()
    from django.conf import settings

    from benchmarks.admin_rows import Sizes, fill
    from workspaces.models import Workspace

    settings.ALLOWED_HOSTS = ["testserver"]
    if not Workspace.objects.exists():  # it was kept
        begun = time.monotonic()
        fill(Sizes(given.workspaces, given.records, given.activity))
        print(f"{given.workspaces} workspaces: filled in {time.monotonic() - begun:.0f} s", file=sys.stderr)
    _Pages().answer()


class _Pages:
    def __init__(self) -> None:
        from django.contrib.auth import get_user_model
        from django.test import Client

        from benchmarks.admin_api import api_addresses
        from benchmarks.admin_pages import addresses

        users = get_user_model().objects
        self.user = users.filter(username="bench").first() or users.create_superuser("bench")
        self.client = Client()
        self.client.force_login(self.user)
        self.admin = addresses(self.user)
        self.api, self.headers = api_addresses()
        self.shown: dict[str, int] = {}

    def answer(self) -> None:
        from benchmarks.admin_pages import unmeasured

        _say({"admin": list(self.admin), "api": list(self.api), "unmeasured": sorted(unmeasured(set(self.admin)))})
        for line in sys.stdin:
            name, rendered = json.loads(line)
            found = _measured(self._rendered(name) if rendered else self._read(name))
            _say({**found, "rows": self._rows(name)})

    def _rows(self, name: str) -> int:
        """How many a list shows; 0 for what is no list."""
        if name not in self.shown:
            is_list = name in self.admin and "." in name and not name.endswith((" row", " row, busiest"))
            self.shown[name] = len(self._read(name)().result_list) if is_list else 0
        return self.shown[name]

    def _rendered(self, name: str) -> Callable[[], object]:
        """The whole page."""
        url, headers = (self.api[name], self.headers) if name in self.api else (self.admin[name], {})

        def get() -> None:
            answer = self.client.get(url, headers=headers)
            if answer.status_code != 200:
                raise SystemExit(f"{answer.status_code} for {url}: {answer.content[:300]!r}")

        return get

    def _read(self, name: str) -> Callable[[], Any]:
        """The rows and filters of a list, without its HTML."""
        from benchmarks.admin_pages import shown_list

        return lambda: shown_list(self.admin[name], self.user)


def _say(values: dict[str, Any]) -> None:
    print(json.dumps(values), flush=True)


def _measured(call: Callable[[], object]) -> dict[str, Any]:
    """The queries of one call, and the times of the next."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as captured:
        call()
        queries = len(captured)
    begun, used = time.perf_counter(), _processor_seconds(connection)
    call()
    wall = time.perf_counter() - begun
    return {"queries": queries, "wall": wall, "cpu": _processor_seconds(connection) - used}


def _processor_seconds(connection: Any) -> float:
    """Of this process, and of the server's process for its connection."""
    own = time.process_time()
    connection.ensure_connection()
    pid = connection.connection.info.backend_pid
    return own + int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


if __name__ == "__main__":
    main()
