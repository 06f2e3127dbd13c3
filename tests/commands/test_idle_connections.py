"""The edge, never the server behind it, closes an idle connection between them.

If a server closes it while a request is in transit, that request fails: the edge does not repeat requests with a body
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
from supervise.processes import processes
from tests.commands.conftest import CADDY

# Caddy's default.
DEFAULT_SECONDS = 120.0
# The option of a server after which it ends an idle connection, and how many of its units are a second.
OPTIONS = {"streams": ("--timeout-keep-alive", 1), "api": ("--http1-header-read-timeout", 1000)}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_edge_ends_an_idle_connection_before_the_server_behind_it(
    make_instance: Callable[[str], Instance], name: str
) -> None:
    instance = make_instance("idle")
    settings = instance.settings({})
    option, unit = OPTIONS[name]
    (command,) = (process.command for process in processes(instance, settings) if process.name == name)
    server_seconds = int(command[command.index(option) + 1]) / unit
    idle_seconds = list(_idle_seconds(_adapted_config(instance, settings), f"unix/{instance.run_dir}/{name}.sock"))
    assert idle_seconds
    assert max(idle_seconds) <= server_seconds - 10


def _adapted_config(instance: Instance, settings: dict[str, str]) -> Any:
    path = instance.run_dir / "Caddyfile"
    path.write_text(caddyfile(settings, instance.run_dir))
    command = [CADDY, "adapt", "--config", str(path), "--adapter", "caddyfile"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def _idle_seconds(part: Any, upstream: str) -> Iterator[float]:
    """The idle timeout of each proxy to an upstream."""
    if isinstance(part, dict) and {"dial": upstream} in (part.get("upstreams") or []):
        keep_alive = part.get("transport", {}).get("keep_alive", {})
        yield keep_alive["idle_timeout"] / 1e9 if "idle_timeout" in keep_alive else DEFAULT_SECONDS
    children = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    for child in children:
        yield from _idle_seconds(child, upstream)
