"""A client of the runtime that was written before this platform, in Node.js, through the real servers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.urls import URLPattern

from tests.vm.client import Api
from tests.vm.instances import TestInstance
from tests.vmbackend.hold_factory import end_program
from vmbackend.fake.holds import HOLD_FILE
from workspaces.runtime.urls import LEVEL


def node_version() -> bytes:
    node = shutil.which("node")
    return subprocess.run([node, "--version"], capture_output=True, check=True).stdout if node else b""


PROGRAM = Path(__file__).with_name("existing_client") / "main.mjs"
SECONDS = 300
# Node.js 20 and 21 have WebSocket by an option, later ones by themselves, and earlier ones do not.
OPTIONS = ["--experimental-websocket"] if re.match(rb"v2[01]\.", node_version()) else []
# It is given as an address whole, and not made by the client.
LINKED = "files/linked/<str:file_link>"

pytestmark = pytest.mark.skipif(shutil.which("rg") is None, reason="needs ripgrep")


@pytest.fixture(scope="module")
def ran(
    served: TestInstance, client: Api, hold_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """The results of the program's steps, and the requests that it has made."""
    workspace, other = (client.create("localhost/tiny:1")["id"] for _ in range(2))
    hold = tmp_path_factory.mktemp("hold")
    program = served.state / "machines/directories" / workspace / HOLD_FILE
    program.write_text(f"#!/bin/sh\nTASK_FOLDER={hold}/tasks exec {hold_program} attach {hold} 262144 10000\n")
    program.chmod(0o700)
    given = {
        "base": served.settings.base_url,
        "headers": {name: client.http.headers[name] for name in ("X-Client-ID", "X-Client-Secret")},
        "workspace": workspace,
        "other": other,
        "host": f"http://{workspace.replace('_', '-')}.localhost:{urlsplit(served.settings.base_url).port}",
    }
    done = subprocess.run(
        ["node", *OPTIONS, PROGRAM], input=json.dumps(given).encode(), capture_output=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    yield json.loads(done.stdout)
    end_program(hold_program)


def test_every_step_finds_what_the_contract_says(ran: Any) -> None:
    failed = {name: said for name, said in ran["results"].items() if said != "ok"}
    assert not failed, "\n\n".join(f"{name}: {said}" for name, said in failed.items())
    assert len(ran["results"]) > 45


def test_no_route_of_the_runtime_is_left_out(ran: Any) -> None:
    patterns = [pattern for pattern in LEVEL if isinstance(pattern, URLPattern)]
    routes = {f"{method} /{pattern.pattern}" for pattern in patterns for method in methods_of(pattern)}
    names = (re.sub(r"/proxy/.*", "/proxy/<any_path:inner_path>", text) for text in ran["asked"])
    asked = {re.sub(r"/(exec|terminals|watchers)/\w+(?=/input$|/scrollback$|$)", named_id, text) for text in names}
    assert {route for route in routes if LINKED not in route} <= asked


def methods_of(pattern: URLPattern) -> list[str]:
    actions: dict[str, str] = pattern.callback.actions  # type: ignore[attr-defined]
    return [method.upper() for method in actions if method != "head"]


def named_id(found: re.Match[str]) -> str:
    names = {"exec": "task", "terminals": "terminal", "watchers": "watcher"}
    return found[0] if found[0] == "/exec/stream" else f"/{found[1]}/<str:{names[found[1]]}_id>"
