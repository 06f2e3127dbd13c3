"""What the command line does for long goes on after a restart of the whole platform."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.cli.runner import Ws
from tests.clients.cli.trees import tree_of
from tests.threads import wait_until
from tests.vm.instances import TestInstance, new_instance

IMAGE = "localhost/tiny:1"


@pytest.fixture
def restarted() -> Iterator[TestInstance]:
    """An instance of its own: others would wait for it."""
    with new_instance(images=False, PLATFORM_HOST_NAME="restarted", PLATFORM_VM_BACKEND="fake") as made:
        made.start()
        yield made


def test_a_log_a_copy_and_a_wait_outlive_a_restart(restarted: TestInstance, tmp_path: Path) -> None:
    ws = Ws(tmp_path / "config")
    ws.output("login", "--file", restarted.instance.credentials_file)
    ws.output("create", "--name", "box", "--image", IMAGE, "--wait")
    (tmp_path / "tree").mkdir()
    for number in range(120):
        (tmp_path / "tree" / str(number)).write_bytes(bytes(1 << 20))
    log = ws.process("logs", "-f", "--json", "box")
    assert log.stdout is not None
    assert "line" in json.loads(log.stdout.readline())
    with restarted.held("create.wait_ready"):
        creation = ws.process("create", "--name", "second", "--image", IMAGE, "--wait")
        copy = ws.process("cp", "-r", tmp_path / "tree", "box:/srv/")
        wait_until(lambda: ".part" in ws.run("exec", "box", "ls", "-A", "srv").stdout)
        restarted.stop()
        assert (creation.poll(), copy.poll(), log.poll()) == (None, None, None)
        restarted.start()
    output, errors = copy.communicate(timeout=300)
    assert (copy.returncode, output) == (0, b"Copied 120 files, 120 MiB.\n"), errors
    assert b"begins again" in errors
    output, errors = creation.communicate(timeout=300)
    assert (creation.returncode, output) == (0, b"second\n"), errors
    ws.output("cp", "-r", "box:/srv/tree", tmp_path / "back")
    assert tree_of(tmp_path / "back") == tree_of(tmp_path / "tree")
    assert log.poll() is None
    ws.output("rm", "-y", "box", "second")
    assert log.wait(120) == 0  # what was followed is deleted
