"""Who ends an idle connection between the edge and the servers behind it: the edge, never the server.

A server that closes one while a request is on its way costs that request: the edge repeats none that has a body, and
answers 503. It takes no more than an edge that was held up for a moment just then.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from edge.caddy import caddyfile
from supervise.instance import Instance
from supervise.processes import processes

pytestmark = pytest.mark.skipif(shutil.which("caddy") is None, reason="caddy is not installed")
# Caddy's own, where its configuration says nothing.
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
    kept = list(_idle_seconds(_adapted(instance, settings), f"unix/{instance.run_dir}/{name}.sock"))
    assert kept
    assert max(kept) <= server_seconds - 10


def _adapted(instance: Instance, settings: dict[str, str]) -> Any:
    path = instance.run_dir / "Caddyfile"
    path.write_text(caddyfile(settings, instance.run_dir))
    command = ["caddy", "adapt", "--config", str(path), "--adapter", "caddyfile"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def _idle_seconds(part: Any, upstream: str) -> Iterator[float]:
    """How long each proxy to an upstream keeps what idles."""
    if isinstance(part, dict) and {"dial": upstream} in (part.get("upstreams") or []):
        kept = part.get("transport", {}).get("keep_alive", {})
        yield kept["idle_timeout"] / 1e9 if "idle_timeout" in kept else DEFAULT_SECONDS
    children = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    for child in children:
        yield from _idle_seconds(child, upstream)
