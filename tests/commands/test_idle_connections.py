"""The edge keeps no idle connection to the servers behind it.

If a server closes one while a request is in transit, that request fails: the edge does not repeat requests with a body
and responds with 503. A short delay of the edge is enough for that race.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from edge.caddy import caddyfile
from supervise.instance import Instance
from tests.commands.conftest import CADDY


@pytest.mark.parametrize("name", ["api", "streams"])
def test_the_edge_keeps_no_connection_to_a_server(make_instance: Callable[[str], Instance], name: str) -> None:
    instance = make_instance("idle")
    found = list(_keep_alives(_adapted_config(instance), f"unix/{instance.run_dir}/{name}.sock"))
    assert found
    assert all(keep_alive == {"enabled": False} for keep_alive in found)


def _adapted_config(instance: Instance) -> Any:
    path = instance.run_dir / "Caddyfile"
    path.write_text(caddyfile(instance.settings({}), instance.run_dir))
    command = [CADDY, "adapt", "--config", str(path), "--adapter", "caddyfile"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def _keep_alives(part: Any, upstream: str) -> Iterator[Any]:
    """The keep-alive settings of each proxy to an upstream."""
    if isinstance(part, dict) and {"dial": upstream} in (part.get("upstreams") or []):
        yield part.get("transport", {}).get("keep_alive")
    children = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    for child in children:
        yield from _keep_alives(child, upstream)
