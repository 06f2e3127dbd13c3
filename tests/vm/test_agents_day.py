"""An agent's day in one sandbox on a real machine: a repository, a watch, a long build that survives everything."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.sandboxes.level.git_image import add_git_files, git_version
from tests.sandboxes.sockets.client import Refused, WebSocketClient
from tests.vm.client import Api, until
from tests.vm.git_host import PASSWORD, GitHost, git_host
from tests.vm.images import add_image, has_image
from tests.vm.instances import TestInstance
from tests.vm.onhost import machine_pids
from tests.vm.outside import outside
from tests.vm.sandbox_sockets import connect, connect_patiently, cut
from tests.vm.sleep_command import SleepCommand

pytestmark = [pytest.mark.vm, pytest.mark.host, pytest.mark.usefixtures("clean")]

APP = "/w/app"
# As long as the test takes.
BUILD = """#!/bin/sh
n=0
while [ ! -e /tmp/enough ]; do
	n=$((n+1))
	echo "unit $n at $(stty size)"
	sleep 0.05
done
echo "built $n units"
"""
UNIT = re.compile(rb"unit (\d+) at (\d+ \d+)\r")
SOURCE = "int main(void)\n{\n\treturn 1;\n}\n"


class Agent:
    """The holder of a sandbox's token."""

    def __init__(self, sandbox: dict[str, Any]) -> None:
        self.sandbox, self.token = sandbox, str(sandbox["token"])

    def answer(self, route: str, **body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"{self.sandbox['url']}/{route}"
        return httpx.post(url, json=body, headers=headers, timeout=120, trust_env=False)

    def post(self, route: str, **body: Any) -> dict[str, Any]:
        answer = self.answer(route, **body)
        assert answer.status_code == 200, (route, answer.text)
        found: dict[str, Any] = answer.json()
        assert found["success"] is True
        return found

    def refused(self, route: str, **body: Any) -> tuple[int, str]:
        answer = self.answer(route, **body)
        return answer.status_code, str(answer.json()["code"])

    def run(self, command: str) -> str:
        done = self.post("terminal", command=command)
        assert done["exitCode"] == 0, done
        return str(done["output"]).strip()


class Build:
    """A terminal's output across connections, each byte of which comes once."""

    def __init__(self, client: WebSocketClient) -> None:
        made = client.ask("terminal_created", action="terminal_create", command="./build.sh", args=[], cwd=APP)
        self.id, self.client, self.former = int(made["terminalId"]), client, b""

    @property
    def output(self) -> bytes:
        return self.former + bytes(self.client.output.get(self.id, b""))

    def see_more(self, lines: int = 5) -> None:
        wanted = self.output.count(b"\n") + lines
        while self.output.count(b"\n") < wanted:
            self.client.receive()

    def resume(self, client: WebSocketClient) -> None:
        """On another socket, from the byte on that follows the last one; then it goes on."""
        self.former, self.client = self.output, client
        attached = until(self._attached, 60, "the terminal is attached")
        assert (attached["offset"], attached["skipped"]) == (len(self.former), 0)
        self.see_more()

    def _attached(self) -> dict[str, Any] | None:
        """None where the guest was not reached."""
        self.client.send(action="terminal_attach", id=self.id, offset=len(self.former))
        while True:
            for found in self.client.messages:
                if found["type"] in ("terminal_attached", "terminal_error"):
                    self.client.messages.remove(found)
                    assert found.get("code") in (None, "guest_unreachable"), found
                    return None if "code" in found else found
            self.client.receive()


@pytest.fixture
def git_remote(instance: TestInstance, tmp_path: Path) -> Iterator[GitHost]:
    with outside(instance.id) as internet, git_host(internet, tmp_path) as made:
        made.add_repository("app.git", {"main.c": SOURCE, "build.sh": BUILD})
        made.add_repository("tools.git", {"tool": "#!/bin/sh\necho tool\n"})
        yield made


@pytest.fixture
def agent(instance: TestInstance, api: Api, tmp_path: Path) -> Agent:
    image, store = f"localhost/tests-git:{git_version()}", instance.settings.images_dir / "oci"
    if not has_image(store, image):
        add_git_files(tmp_path / "image")
        add_image(store, image, tmp_path / "image")
    config = {"memory_mb": 256, "disk_size_mb": 128, "cpus": 1}
    body = {"name": "agent", "image": image, "config": config}
    return Agent(api.call("POST", "/sandbox", 201, json=body)["sandbox"])


@contextmanager
def unplugged(instance: TestInstance, ip: str) -> Iterator[None]:
    """The machine's network cable is out."""
    tap = f"mvt{instance.id}{int(IPv4Address(ip)) - int(instance.settings.subnet.network_address):x}"
    subprocess.run(["ip", "link", "set", tap, "down"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "set", tap, "up"], check=True)


@pytest.mark.timeout(1800)
def test_an_agents_day(
    instance: TestInstance, api: Api, agent: Agent, git_remote: GitHost, sleep_command: SleepCommand
) -> None:
    clone_by_password_and_key(agent, git_remote)
    client = connect(agent.sandbox, agent.token)
    edit_under_a_watch(agent, client)
    build = Build(client)
    build.see_more()
    resized = client.ask("terminal_resized", a="r", id=build.id, cols=77, rows=22)
    assert (resized["cols"], resized["rows"]) == (77, 22)
    build.see_more()
    lose_connections(instance, api, agent, build, sleep_command)
    agent.run("touch /tmp/enough")
    assert build.client.expect("terminal_exited")["exitCode"] == 0
    assert_whole(build.output)
    publish(agent, git_remote)
    end_day(instance, api, agent, build.client)
    assert_not_written(instance, PASSWORD, *git_remote.key.splitlines()[2:-1])


def clone_by_password_and_key(agent: Agent, remote: GitHost) -> None:
    url, wrong = f"{remote.http_url}/app.git", {**remote.password_auth, "password": "wrong"}
    refusal = agent.refused("git/clone", url=url, targetDir=APP, auth=wrong)
    assert refusal == (400, "git_authentication_failed")
    cloned = agent.post("git/clone", url=url, targetDir=APP, auth=remote.password_auth)
    assert (cloned["branch"], cloned["commit"]) == ("main", remote.head("app.git"))
    url = f"{remote.ssh_url}/tools.git"
    cloned = agent.post("git/clone", url=url, targetDir="/w/tools", auth=remote.key_auth)
    assert cloned["commit"] == remote.head("tools.git")
    assert agent.run("/w/tools/tool") == "tool"


def edit_under_a_watch(agent: Agent, client: WebSocketClient) -> None:
    client.ask("watch_started", type="watch", path=APP, ignorePatterns=[".git/"])
    edits = [{"oldText": "return 1;", "newText": "return needle;"}]
    agent.post("files/edit", filePath=f"{APP}/main.c", edits=edits)
    agent.post("files/create", fullPath=f"{APP}/needle.h", content="#define needle 0\n")
    seen: set[str] = set()
    while not {f"{APP}/main.c", f"{APP}/needle.h"} <= seen:
        while not client.messages:
            client.receive()
        event = client.messages.popleft()
        assert event["type"] in ("watch_add", "watch_change", "watch_unlink")
        assert not event["path"].startswith(f"{APP}/.git")
        seen.add(event["path"])
    client.ask("watch_stopped", type="stop_watch")


def lose_connections(instance: TestInstance, api: Api, agent: Agent, build: Build, sleep_command: SleepCommand) -> None:
    """The client's connection and the machine's network, the process that serves it, and the machine by its sleep."""
    workspace = agent.sandbox["workspace_id"]
    with unplugged(instance, api.get(workspace)["ip"]):
        cut(build.client)
        client = connect(agent.sandbox, agent.token)
    build.resume(client)
    instance.kill("streams")
    cut(build.client)
    build.resume(connect_patiently(agent.sandbox, agent.token))
    cut(build.client)
    sleep_command.sleep(workspace)
    assert workspace not in machine_pids(instance)
    build.resume(connect(agent.sandbox, agent.token))


def assert_whole(output: bytes) -> None:
    """Every line of the build once, in its order; its size changed once."""
    *units, last = output.removesuffix(b"\n").split(b"\n")
    found = [UNIT.fullmatch(line) for line in units]
    assert None not in found, output
    assert [int(each[1]) for each in found if each] == list(range(1, len(units) + 1))
    assert last == b"built %d units\r" % len(units)
    sizes = [each[2] for each in found if each]
    assert [size for at, size in enumerate(sizes) if size != sizes[at - 1] or at == 0] == [b"30 120", b"22 77"]


def publish(agent: Agent, remote: GitHost) -> None:
    """Search, commit and push, by both ways."""
    matches = agent.post("search", query="needle", path="/w")["matches"]
    assert [(row["file"], row["line"]) for row in matches] == [(f"{APP}/main.c", 3), (f"{APP}/needle.h", 1)]
    assert agent.post("search/filenames", query="needle", path="/w")["files"] == [f"{APP}/needle.h"]
    status = agent.post("git/status", repoPath=APP)
    assert (status["modified"], status["untracked"]) == (["main.c"], ["needle.h"])
    author = {"name": "Ada", "email": "ada@example.com"}
    agent.run("echo '# changed' >> /w/tools/tool")
    for path, name, auth in ((APP, "app.git", remote.password_auth), ("/w/tools", "tools.git", remote.key_auth)):
        agent.post("git/add", repoPath=path)
        made = agent.post("git/commit", repoPath=path, message="the day's work", author=author)
        assert agent.post("git/push", repoPath=path, auth=auth)["commit"] == made["commit"] == remote.head(name)


def end_day(instance: TestInstance, api: Api, agent: Agent, client: WebSocketClient) -> None:
    """Rotate the token, then delete: both end what is open."""
    path, former = f"/sandbox/{agent.sandbox['id']}", agent.token
    agent.token = api.call("POST", f"{path}/regenerate-token")["token"]
    assert client.wait_closed().code == 4401
    with pytest.raises(Refused) as refused:
        connect(agent.sandbox, former)
    assert refused.value.status == 403
    client = connect(agent.sandbox, agent.token)
    api.call("DELETE", path)
    assert client.wait_closed().code in (1001, 4401)
    assert agent.refused("terminal", command="true") == (401, "unauthorized")
    until(lambda: agent.sandbox["workspace_id"] not in machine_pids(instance), 60, "the machine is gone")


def assert_not_written(instance: TestInstance, *secrets: str) -> None:
    """In no log of the instance and not in its database."""
    logs, data = instance.state.glob("log/*"), instance.state.glob("postgres/data/**/*")
    files = [path for path in (*logs, *data) if path.is_file()]
    assert len(files) > 100
    for file in files:
        data = file.read_bytes()
        assert not [secret for secret in secrets if secret.encode() in data], file
