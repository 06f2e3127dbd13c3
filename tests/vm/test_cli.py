"""The command line on a real machine, as a user types it: creation to deletion, SSH under a pseudo-terminal."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.clients.cli.runner import PROGRAM, TerminalProcess, Ws
from tests.clients.cli.trees import tree_of
from tests.vm.client import Api, until
from tests.vm.images import BUSYBOX
from tests.vm.instances import TestInstance

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("clean")]
SIZES = ("--image", BUSYBOX, "--cpu", "1", "--ram", "128M", "--disk", "64M")


@pytest.fixture
def ws(instance: TestInstance, tmp_path: Path) -> Ws:
    made = Ws(tmp_path / "config")
    made.output("login", "--file", instance.instance.credentials_file)
    return made


def test_a_workspace_from_its_creation_to_its_end(ws: Ws, api: Api, tmp_path: Path) -> None:
    assert ws.output("create", "--wait", "--name", "typed", "--env", "COLOUR=blue", *SIZES).strip() == "typed"
    assert ws.output("exec", ".", "sh", "-c", "echo $COLOUR; uname -s").split() == ["blue", "Linux"]
    assert ws.run("exec", ".", "sh", "-c", "exit 9").exit_code == 9
    assert ws.output("exec", ".", "seq", "200000") == "".join(f"{n}\n" for n in range(1, 200_001))
    assert "cannot be started" in ws.fails(127, "exec", ".", "no-such-program")
    assert "cannot be started" in ws.fails(126, "exec", ".", "/etc")
    content = bytes(range(256)) * 8000
    assert ws.run("exec", "-i", ".", "cat", stdin=content).stdout_bytes == content
    program = "trap 'echo ended >/dev/shm/ended; exit' TERM; echo begun; sleep 60 & wait"
    running = ws.process("exec", ".", "sh", "-c", program)
    assert running.stdout is not None
    assert running.stdout.readline() == b"begun\n"
    running.send_signal(signal.SIGINT)
    assert b"ended in the workspace" in running.communicate(timeout=120)[1]
    until(lambda: ws.run("exec", ".", "cat", "/dev/shm/ended").exit_code == 0, 30, "the program has ended")

    tree = tmp_path / "tree"
    (tree / "empty").mkdir(parents=True)
    (tree / "run.sh").write_text("#!/bin/sh\necho from the copy\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "data").write_bytes(bytes(range(256)) * 400)
    (tree / "data").chmod(0o600)
    (tree / "link").symlink_to("run.sh")
    (tree / ("long" * 50)).write_text("long")
    for number in range(300):
        (tree / "empty" / str(number)).write_text(str(number))
    ws.output("cp", "-r", tree, "typed:/srv/")
    assert ws.output("exec", ".", "/srv/tree/run.sh").strip() == "from the copy"
    ws.output("cp", "-r", tree, "typed:/srv/")  # once more, into what is there
    assert ws.output("exec", ".", "ls", "-A", "/srv").split() == ["tree"]
    assert ws.output("exec", ".", "stat", "-c", "%a %u", "/srv/tree/data").strip() == "600 0"
    ws.output("exec", ".", "ln", "-s", "/etc", "/srv/tree/etc")
    assert "leads out" in ws.fails(1, "cp", "-r", ".:/srv/tree", tmp_path / "back")
    assert tree_of(tmp_path / "back") == tree_of(tree)
    ws.output("cp", tree / "data", ".:/srv/alone")
    assert ws.output("exec", ".", "stat", "-c", "%a", "/srv/alone").strip() == "600"
    ws.output("workload", "add", "lasting", ".", "--", "sh", "-c", "echo begun; sleep 600")
    until(lambda: "begun" in ws.output("logs", "-s", "lasting", "."), 60, "the workload writes")

    until(lambda: ws.output("logs", "."), 30, "the console has lines")
    follow = ws.process("logs", "-f", "--json")
    assert follow.stdout is not None
    assert json.loads(follow.stdout.readline())["source"] == "boot"
    follow.terminate()
    follow.communicate(timeout=120)

    ws.output("exec", ".", "sh", "-c", "echo kept >/dev/shm/memory")
    url = ws.output("port", "publish", "8080").strip()
    assert [row["url"] for row in ws.json("port", "list")] == [url]
    assert ws.output("sleep").strip() == "typed is sleeping."
    assert ws.output("wake").strip() == "typed is running."
    assert ws.output("exec", ".", "cat", "/dev/shm/memory").strip() == "kept"
    ws.output("rm", "-y", "typed")
    ws.fails(4, "show", "typed")


def test_terminals_of_workspaces_and_sandboxes(ws: Ws) -> None:
    ws.output("create", "--wait", *SIZES)
    with TerminalProcess([*PROGRAM, "terminal"], ws.environment) as terminal:
        terminal.read_until("# ")
        terminal.write("stty size; echo by''-ssh\r")
        assert "30 100" in terminal.read_until("by-ssh")
        terminal.write("exit 5\r")
        assert terminal.wait() == 5
        assert terminal.is_restored()
    assert ws.process("ssh", ".", "echo 'a  b'; echo c").communicate(timeout=120)[0] == b"a  b\nc\n"

    ws.output("create", "--wait", "--sandbox", "--name", "agent", *SIZES)
    with TerminalProcess([*PROGRAM, "terminal", "agent"], ws.environment) as terminal:
        terminal.read_until("# ")
        terminal.write("stty size; echo by''-socket\r")
        assert "30 100" in terminal.read_until("by-socket")
        terminal.write("exit 6\r")
        assert terminal.wait() == 6
        assert terminal.is_restored()
