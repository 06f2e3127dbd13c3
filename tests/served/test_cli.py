"""The command line through the real servers, with the fake driver's machines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.clients.cli.runner import PROGRAM, TerminalProcess, Ws
from tests.threads import wait_until
from tests.vm.client import Api, until
from tests.vm.instances import TestInstance

IMAGE = "localhost/tiny:1"


@pytest.fixture
def ws(served: TestInstance, client: Api, tmp_path: Path) -> Ws:
    """Logged in by the instance's own file."""
    made = Ws(tmp_path / "config")
    made.output("login", "--file", served.instance.credentials_file)
    return made


@pytest.fixture
def made(ws: Ws, client: Api) -> Iterator[str]:
    """A workspace of the test, the last created one."""
    slug = f"cli-{os.urandom(4).hex()}"
    assert ws.output("create", "--name", slug, "--image", IMAGE, "--wait").strip() == slug
    yield slug
    client.http.delete(f"/workspace/{slug}")


def test_the_last_created_workspace_is_the_one_that_is_meant(ws: Ws, made: str) -> None:
    shown = ws.json("show")
    assert (shown["slug"], shown["status"]) == (made, "running")
    assert ws.output("exec", ".", "sh", "-c", "printf hello").strip() == "hello"
    assert made in ws.output("list", "--search", made)
    rows = ws.json("list", "--search", made)
    assert [row["slug"] for row in rows] == [made]


def test_a_workspace_has_the_given_sizes_and_environment(ws: Ws, client: Api) -> None:
    words = ("--cpu", "0.5", "--ram", "256M", "--disk", "1G", "--env", "COLOUR=blue", "--permanent")
    made = ws.json("create", "--image", IMAGE, *words, "--wait")
    assert made["resources"] == {"cpus": 0.5, "memory_mb": 256, "disk_size_mb": 1024}
    assert made["mode"] == "permanent"
    assert ws.output("exec", made["id"], "sh", "-c", "echo $COLOUR").strip() == "blue"
    assert "512 MiB of memory" in ws.output("resize", "--ram", "512M", made["id"])
    assert "--yes" in ws.fails(2, "rm", made["id"])
    ws.fails(4, "rm", "-y", made["id"], "absent")
    assert ws.json("list", "--search", made["slug"]) == []


def test_a_program_gets_its_input_and_gives_its_code(ws: Ws, made: str) -> None:
    found = ws.run("exec", "-i", "-e", "A=1", made, "--", "sh", "-c", "cat; echo $A >&2; exit 7", stdin="typed\n")
    assert (found.exit_code, found.stdout, found.stderr) == (7, "typed\n", "1\n")
    result = json.loads(ws.run("exec", "--json", made, "sh", "-c", "exit 3").stdout)
    assert (result["exit_code"], result["timed_out"]) == (3, False)
    assert "killed after 1 seconds" in ws.fails(124, "exec", "--timeout", "1", made, "sleep", "20")
    assert ws.output("exec", made, "sh", "-c", "yes | head -c 3000000") == "y\n" * 1_500_000


def test_bytes_of_any_kind_and_number_go_in_and_out(ws: Ws, made: str) -> None:
    content = os.urandom(9 << 20)
    found = ws.run("exec", "-i", made, "sh", "-c", "tee copy; sha256sum <copy >&2", stdin=content)
    assert found.stdout_bytes == content
    assert sha256(content).hexdigest() in found.stderr


def test_a_program_reads_what_is_typed_while_it_runs(ws: Ws, made: str) -> None:
    program = "while read line; do echo got $line; done; echo end"
    process = ws.process("exec", "-i", made, "sh", "-c", program, stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    for line in (b"one\n", b"two\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline() == b"got " + line
    process.stdin.close()
    assert (process.stdout.read(), process.wait(60)) == (b"end\n", 0)


def test_ctrl_c_ends_a_program_in_its_workspace(ws: Ws, made: str, tmp_path: Path) -> None:
    program = f"trap 'touch {tmp_path}/ended; exit' TERM; echo begun; while :; do sleep 0.1; done"
    process = ws.process("exec", made, "sh", "-c", program)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGINT)
    assert b"ended in the workspace" in process.communicate(timeout=60)[1]
    wait_until(lambda: (tmp_path / "ended").exists())


def test_what_fails_in_ws_itself_is_no_code_of_the_program(ws: Ws, made: str) -> None:
    assert "cannot be started" in ws.fails(127, "exec", made, "no-such-program")
    assert "cannot be started" in ws.fails(126, "exec", "-i", made, "/")
    assert "ws list" in ws.fails(125, "exec", "nothing-of-this-name", "true")
    ws.output("stop", made)
    assert "Start it with" in ws.fails(125, "exec", made, "true")
    error = json.loads(ws.fails(125, "exec", "--json", made, "true"))["error"]
    assert (error["code"], error["exit_code"]) == ("vm_not_running", 5)


def test_logs_are_shown_and_followed(ws: Ws, made: str) -> None:
    assert "ready" in ws.output("logs", made).lower() or ws.json("show")["ready"]
    process = ws.process("logs", "-f", "--json", made)
    assert process.stdout is not None
    assert "line" in json.loads(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert b"Traceback" not in output + errors


def test_programs_that_last_are_workloads(ws: Ws, made: str) -> None:
    ws.output("workload", "add", "web", made, "--restart", "never", "--", "sleep", "600")
    name = ws.output("exec", "-d", made, "sleep", "600").strip()
    assert {row["name"] for row in ws.json("workload", "list", made)} == {"web", name}
    assert ws.output("workload", "rm", "web", made) == "web is removed.\n"
    ws.output("workload", "rm", name, made)
    assert ws.json("workload", "list", made) == []


def test_what_an_account_has_is_shown(ws: Ws, made: str) -> None:
    assert ws.json("whoami")["quota"]["currentSandboxes"] > 0
    assert ws.json("show")["id"] in ws.output("list", "-q").splitlines()
    assert ws.json("api", "GET", f"/workspace/{made}")["workspace"]["slug"] == made
    assert ws.json("usage", made)[0]["workspace"] == made
    assert isinstance(ws.json("images"), list)
    assert ws.output("rename", made, "Another name") == f"{made} is named Another name.\n"
    assert ws.output("pause", made) == f"{made} is paused.\n"
    assert ws.output("resume", made) == f"{made} is running.\n"
    assert "no namespace" in (text := ws.fails(4, "create", "--namespace", "nowhere", "--image", IMAGE))
    assert "ws credits" in text


def test_power_goes_by_names(ws: Ws, made: str) -> None:
    for word, status in (("sleep", "sleeping"), ("wake", "running"), ("stop", "stopped"), ("start", "running")):
        assert ws.output(word, made).strip() == f"{made} is {status}."
    assert ws.json("restart")["status"] == "running"
    assert "make it permanent" in ws.fails(5, "sleep", "--when-idle", "10m")


def test_ports_are_published_listed_and_opened(ws: Ws, made: str) -> None:
    url = ws.output("port", "publish", "8080", "--label", "web").strip()
    assert url.startswith("http://")
    assert ws.json("port", "list")[0]["url"] == url
    assert ws.output("open", "--print").strip() == url
    assert "only a private port has links" in ws.fails(5, "port", "link", "8080")
    assert ws.output("port", "access", "8080", "private") == "Port 8080 is private.\n"
    address = ws.output("port", "link", "8080", "--ttl", "2h", "--label", "Alice").strip()
    assert address.startswith(f"{url}/?__link=plk_")
    (link,) = ws.json("port", "links", "8080")
    assert (link["label"], link["url"]) == ("Alice", None)
    assert link["id"] in ws.output("port", "unlink", "8080", link["id"])
    assert ws.json("port", "links", "8080") == []
    ws.output("port", "rm", "8080")
    assert ws.json("port", "publish", "8080", "--private")["access"] == "private"
    ws.output("port", "rm", "8080")
    assert ws.json("port", "list") == []
    assert "no such public port" in ws.fails(4, "open", "--print")


def test_pages_are_deployed_and_rolled_back(ws: Ws, made: str, tmp_path: Path) -> None:
    slug = f"page-{os.urandom(3).hex()}"
    (tmp_path / "index.html").write_text("one")
    ws.output("cp", tmp_path / "index.html", ".:/srv/site/index.html")
    assert ws.output("pages", "deploy", slug, ".:/srv/site").startswith("http")
    ws.output("pages", "deploy", slug)
    assert [row["release"] for row in ws.json("pages", "releases", slug)] == [2, 1]
    assert "serves release 1" in ws.output("pages", "rollback", slug)
    assert "no earlier release" in ws.fails(5, "pages", "rollback", slug)
    assert slug in ws.output("pages", "list")
    assert ws.json("pages", "show", slug)["release"] == 1
    ws.output("pages", "disable", slug)
    ws.output("pages", "enable", slug)
    assert "--yes" in ws.fails(2, "pages", "rm", slug)
    ws.output("pages", "rm", "-y", slug)
    ws.fails(4, "pages", "show", slug)


def test_credits_and_sandboxes_are_listed(ws: Ws) -> None:
    assert isinstance(ws.json("credits"), list)
    assert ws.json("credits", "default")["namespace"] == "default"
    made = ws.json("create", "--wait", "--sandbox", "--name", "agent", "--image", IMAGE)
    assert made["id"] in ws.output("list", "--sandboxes")
    assert ws.output("exec", ".", "echo", "in").strip() == "in"
    assert "WebSocket" not in ws.fails(125, "terminal", "agent")
    ws.output("rm", "-y", "agent")
    assert made["id"] not in ws.output("list", "--sandboxes")  # other files have some in this instance, too


def test_a_creation_that_fails_says_why(ws: Ws) -> None:
    text = ws.fails(1, "create", "--image", "registry.invalid/missing:1", "--wait")
    assert "Error: " in text
    assert "ws rm" in text
    ws.output("rm", "-y", ".")
    assert "memory_mb" in ws.fails(2, "create", "--image", IMAGE, "--ram", "1M")


def test_a_wrong_secret_is_not_saved(ws: Ws, served: TestInstance) -> None:
    url = served.settings.base_url
    words = ("--url", url, "--client-id", "cl_unknown", "--secret-stdin")
    text = ws.fails(3, "login", "other", *words, stdin="wrong\n")
    assert "wrong" not in text
    assert [row["name"] for row in ws.json("profiles")] == ["default"]
    ws.variables = {"MICROVM_CLIENT_SECRET": "wrong"}
    ws.fails(3, "list")
    assert ws.run("list", "--profile", "default").exit_code == 0


def test_names_of_workspaces_are_completed(ws: Ws, made: str) -> None:
    words = {"_WS_COMPLETE": "complete_bash", "COMP_WORDS": f"ws show {made[:6]}", "COMP_CWORD": "2"}
    command = [PROGRAM[0], "-c", "import sys; sys.argv[0] = 'ws'; from microvm.cli.entry import main; main()"]
    found = subprocess.run(command, env={**ws.environment, **words}, capture_output=True, text=True, check=False)
    assert made in found.stdout.split()


def test_a_creation_shows_its_progress_on_a_terminal_and_ends_by_ctrl_c(
    ws: Ws, served: TestInstance, client: Api
) -> None:
    with served.held("create.wait_ready"):
        command = [*PROGRAM, "create", "--image", IMAGE, "--name", "held-back", "--wait"]
        with TerminalProcess(command, ws.environment) as terminal:
            terminal.read_until("%")
            terminal.write("\x03")
            assert terminal.wait() == 130
            assert b"Traceback" not in terminal.seen
            assert terminal.is_restored()
    assert ws.json("show")["name"] == "held-back"
    until(lambda: ws.json("show")["ready"], 60, "its creation goes on")
    ws.output("rm", "-y", ".")


def test_a_service_that_goes_away_is_one_sentence(ws: Ws, served: TestInstance) -> None:
    begun = time.monotonic()
    ws.variables = {"MICROVM_URL": "http://127.0.0.1:9"}
    text = ws.fails(7, "list")
    assert "cannot be reached" in text
    assert time.monotonic() - begun < 30
    error = json.loads(ws.fails(7, "list", "--json"))["error"]
    assert (error["code"], error["exit_code"]) == ("unreachable", 7)
