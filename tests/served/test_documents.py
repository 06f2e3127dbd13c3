"""The examples of docs/cli.md and docs/mcp.md, as a user types them, with a `ws` in the path."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from tests.clients.cli.runner import PROGRAM, Ws
from tests.vm.instances import TestInstance

DOCS = Path(settings.ROOT) / "docs"
# Of a hang: each command is a process of its own, and other work may have the processors.
HANGING = 840


@pytest.fixture
def environment(served: TestInstance, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "var").mkdir()
    shutil.copy(served.instance.credentials_file, tmp_path / "var/credentials.env")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/ws"
    program.write_text(f"#!{PROGRAM[0]}\nfrom microvm.cli.entry import main\nmain()\n")
    program.chmod(0o755)
    made = Ws(tmp_path / "config").environment
    return made | {"PATH": f"{tmp_path / 'bin'}:{made['PATH']}"}


def test_the_commands_of_the_document_run(environment: dict[str, str], tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", (DOCS / "cli.md").read_text(), re.M | re.S)
    assert len(blocks) >= 7
    script = "set -eu\n" + "".join(blocks) + "ws rm --yes hello\n"
    found = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGING,
    )
    assert found.returncode == 0, (found.stdout, found.stderr)
    assert (tmp_path / "copy/one.txt").read_text() == "one\n"
    for text in ("typed\n", "value in ", "small is stopped.", "hello is sleeping.", "serves release 1"):
        assert text in found.stdout
    assert "Traceback" not in found.stderr


def test_the_program_of_the_document_runs(environment: dict[str, str], tmp_path: Path) -> None:
    subprocess.run(["ws", "login", "--file", "var/credentials.env"], cwd=tmp_path, env=environment, check=True)
    (program,) = re.findall(r"^```python\n(.*?)^```", (DOCS / "mcp.md").read_text(), re.M | re.S)
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=HANGING
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["running", "hello"]


def test_the_document_has_every_tool() -> None:
    from microvm.mcp_server.server import make_server

    names = set(make_server("http://127.0.0.1:9", {"token": "none"})._tool_manager._tools)
    assert names == set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", (DOCS / "mcp.md").read_text())) - {"next_offset"}
