"""What holds after the upgrade, in the order of the checks: first on machines as the earlier code left them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from supervise.backup.manifest import read_manifest
from tests.upgrade.workspaces import (
    BOOT,
    CONTENT,
    COUNT,
    FILE,
    MARK,
    PAGE,
    Workspaces,
    ask_sandbox,
    counted,
    credits_of,
    kit_of,
    run_in_sandbox,
)
from tests.vm.client import Api, until
from tests.vm.instances import TestInstance
from tests.vm.onhost import assert_nothing_is_left_over, machine_pids
from tests.vm.sandbox_sockets import connect
from tests.vm.test_ssh import enter
from tests.vm.test_usage import process_time_ns, totals

MEMORY_MB = 128
# Ticks of ten seconds, a second of the sampler, and what the start of a process takes.
SLACK_SECONDS = 25.0


class LeftOut(Exception):
    """The commit has no such thing."""


@dataclass
class Upgraded:
    """The instance with this checkout's code. `down_seconds`: without any; `pids`: of machines before."""

    instance: TestInstance
    api: Api
    made: Workspaces
    pids: dict[str, int]
    begun_at: float  # of the running workspace, by `clock`
    down_seconds: float
    same_kit: bool
    folder: Path
    clock: Callable[[], float]

    def output(self, workspace_id: str, command: str) -> str:
        return self.api.output(workspace_id, command)

    def assert_same_boot(self, workspace_id: str) -> None:
        """The machine has not booted since, and its memory is what it was."""
        boot, mark = self.output(workspace_id, f"{BOOT}; cat {MARK}").split()
        assert (boot, mark) == (self.made.boots[workspace_id], workspace_id)

    def assert_counting(self, workspace_id: str) -> None:
        """The program of before goes on from where it was."""
        before = self.made.counted[workspace_id]

        def further() -> bool:
            now = counted(self.api, workspace_id)
            assert now is not None, f"no {COUNT}"
            assert now.process == before.process, "it is another process"
            return now.count > before.count

        until(further, 15, "it counts further")
        self.made.counted[workspace_id] = counted(self.api, workspace_id) or before


def states_are_those_of_before(it: Upgraded) -> None:
    made, shown = it.made, {row["id"]: row["status"] for row in it.api.rows()}
    wanted = {made.running: "running", made.asleep: "sleeping", made.paused: "paused", made.stopped: "stopped"}
    assert {key: shown.get(key) for key in wanted} == wanted
    if made.sandbox:
        assert it.api.call("GET", f"/sandbox/{made.sandbox['id']}")["sandbox"]["status"] == "active"
    assert machine_pids(it.instance) == it.pids


def the_running_machine_went_on(it: Upgraded) -> None:
    it.assert_same_boot(it.made.running)
    it.assert_counting(it.made.running)
    assert kit_of(it.api, it.made.running) == it.made.kit


def files_are_written_and_read(it: Upgraded) -> None:
    path, content = f"/workspace/{it.made.running}/overlay/files", b"new\0bytes" * 5000
    raw = {"Content-Type": "application/octet-stream"}
    it.api.call("POST", path, params={"path": "/root/new"}, content=content, headers=raw)
    read = it.api.call("GET", path, params={"path": "/root/new"})
    assert base64.b64decode(read["content"]) == content
    assert it.output(it.made.running, f"cat {FILE}") == it.made.running


def logs_are_read_and_go_on(it: Upgraded) -> None:
    path = f"/workspace/{it.made.running}/logs"

    def last() -> int:
        lines = it.api.call("GET", path, params={"source": "counter", "tail_lines": 1})["logs"]
        return int(lines[0]["line"].split()[1])

    begun = last()
    until(lambda: last() > begun, 20, "new lines come")
    assert it.api.call("GET", path, params={"source": "boot", "tail_lines": 5})["logs"]


def statistics_are_measured(it: Upgraded) -> None:
    def shown() -> dict[str, Any]:
        found: dict[str, Any] = it.api.call("GET", f"/workspace/{it.made.running}/stats")["stats"]
        return found

    until(lambda: shown()["guestMemoryTotal"] and shown()["guestDiskTotal"], 60, "the guest is seen")
    info = it.api.get(it.made.running)["info"]
    assert (info["health"], info["unresponsive_since"]) == ("ok", None), info


def ssh_and_the_public_port_lead_to_it(it: Upgraded) -> None:
    assert enter(it.made.access, it.made.key, f"cat {FILE}") == it.made.running
    assert it.made.site.visit("GET", "/ok").status_code == 200
    with it.made.site.socket() as opened:
        assert opened.echo("word") == "word"
    access = it.api.call("POST", f"/workspace/{it.made.running}/ssh/disable")["ssh"]
    assert access["applied"] is True
    assert it.api.call("POST", f"/workspace/{it.made.running}/ssh/enable")["ssh"]["applied"] is True


def workloads_change(it: Upgraded) -> None:
    """At once, or, where the guest's kit cannot do it, with its next start, and the answers say so."""
    path = f"/workspace/{it.made.running}/workloads"
    body = it.api.call("POST", path, 201, json={"name": "added", "cmd": ["sh", "-c", "echo added; exec sleep 9999"]})
    if body["applied"]:
        names = {each["name"] for each in it.api.call("GET", path)["workloads"]}
        assert names == {"web", "counter", "added"}
    else:
        assert not it.same_kit
        assert "restart it" in body["problem"], body
        assert it.api.call("GET", path, 409)["code"] == "guest_kit_outdated"


def the_network_policy_changes(it: Upgraded) -> None:
    path = f"/workspace/{it.made.running}/network"
    policy = it.api.call("GET", path)["network"]
    it.api.call("PATCH", path, json={"allow_internet": not policy["allow_internet"]})
    it.api.call("PATCH", path, json={"allow_internet": policy["allow_internet"]})


def the_sandbox_has_commands_terminals_and_watches(it: Upgraded) -> None:
    sandbox = _present(it.made.sandbox)
    boot, mark = run_in_sandbox(sandbox, f"{BOOT}; cat {MARK}").split()
    assert (boot, mark) == (it.made.boots[it.made.of_sandbox], it.made.of_sandbox)
    with connect(sandbox, sandbox["token"]) as client:
        terminal = client.ask("terminal_created", action="terminal_create", command="/bin/sh", args=["-i"])
        client.send(a="i", id=terminal["terminalId"], d="echo $((6 * 7))\n")
        client.read_until(terminal["terminalId"], b"42\r\n")
        run_in_sandbox(sandbox, "mkdir -p /root/watched")
        client.ask("watch_started", type="watch", path="/root/watched")
        run_in_sandbox(sandbox, "echo 1 >/root/watched/new")
        assert client.expect("watch_add")["path"].endswith("new")


def the_sandbox_has_files_and_searches(it: Upgraded) -> None:
    sandbox = _present(it.made.sandbox)
    for name in ("a.txt", "b.txt"):
        ask_sandbox(sandbox, "files/create", fullPath=f"/root/level/{name}", content="one\ntwo\n")
    ask_sandbox(sandbox, "files/edit", filePath="/root/level/a.txt", edits=[{"oldText": "two", "newText": "three"}])
    assert ask_sandbox(sandbox, "files/get", filePath="/root/level/a.txt")["content"] == "one\nthree\n"
    ask_sandbox(sandbox, "files/rename", sourcePath="/root/level/b.txt", destinationPath="/root/level/c.txt")
    listed = ask_sandbox(sandbox, "files/list", dirPath="/root/level", recursive=True, includeHash=True)["files"]
    assert sorted(entry["name"] for entry in listed) == ["a.txt", "c.txt"]
    assert len(ask_sandbox(sandbox, "search", query="three", path="/root/level")["matches"]) == 1
    assert len(ask_sandbox(sandbox, "search/filenames", query="txt", path="/root/level")["files"]) == 2
    ask_sandbox(sandbox, "files/delete", filePath="/root/level")


def the_page_is_served_and_deployed_again(it: Upgraded) -> None:
    page = _present(it.made.page)
    shown = _visit(it, page["url"])
    assert (shown.status_code, shown.text.strip()) == (200, PAGE)
    it.output(it.made.running, "echo again >/srv/site/index.html")
    it.api.call("POST", "/pages/kept/deploy", json={})
    assert _visit(it, page["url"]).text == "again\n"


def the_file_is_served(it: Upgraded) -> None:
    before = _present(it.made.file)
    file = it.api.call("GET", f"/cdn/files/{before['id']}")["file"]
    assert (file["status"], file["url"]) == ("active", before["url"])
    sent = _visit(it, file["url"])
    assert (sent.status_code, sent.content) == (200, CONTENT)
    assert "rows and stored bytes agree" in _managed(it, "cdn_check")


def the_paused_machine_resumes(it: Upgraded) -> None:
    it.api.power(it.made.paused, "resume")
    it.assert_same_boot(it.made.paused)
    it.assert_counting(it.made.paused)


def the_sleeping_machine_wakes_with_its_memory(it: Upgraded) -> None:
    it.api.power(it.made.asleep, "resume")
    it.assert_same_boot(it.made.asleep)
    it.assert_counting(it.made.asleep)


def the_stopped_machine_starts_with_its_file(it: Upgraded) -> None:
    it.api.power(it.made.stopped, "start")
    assert it.output(it.made.stopped, f"cat {FILE}") == it.made.stopped
    assert it.output(it.made.stopped, f"test -e {MARK} || echo gone") == "gone"
    assert (kit_of(it.api, it.made.stopped) == it.made.kit) is it.same_kit


def a_backup_is_complete(it: Upgraded) -> None:
    done = it.instance.command("backup", str(it.folder / "backups"))
    assert done.returncode == 0, done.stderr
    manifest = read_manifest(next((it.folder / "backups").glob("2*")))
    assert it.made.running in manifest.omitted


def usage_is_counted_once(it: Upgraded) -> None:
    """The running machine's time but for that in which nothing looked, and its processor time whole."""
    key = it.made.running
    done = process_time_ns(it.instance, key)
    until(lambda: totals(it.api, key)["total_cpu_time_ns"] >= 0.9 * done, 60, "the processor time is counted")
    assert totals(it.api, key)["total_cpu_time_ns"] <= process_time_ns(it.instance, key) + 1e9
    running = it.clock() - it.begun_at
    seconds = _metered_seconds(it, key)
    assert seconds <= running + 1, f"{seconds:.0f} s are metered of {running:.0f}"
    least = running - it.down_seconds - SLACK_SECONDS
    assert seconds >= least, f"{seconds:.0f} s are metered, of at least {least:.0f}"


def charges_agree_with_usage(it: Upgraded) -> None:
    """`ledger_check` computes all charges from the metering records and exits with 1 where one is missing or twice."""
    until(lambda: credits_of(it.api) > it.made.credits, 60, "what ran since is charged")
    _managed(it, "ledger_check")


def the_machine_sleeps_and_wakes_by_a_request(it: Upgraded) -> None:
    """Put to sleep by this code while its guest has the earlier kit."""
    slept = it.api.call("POST", f"/workspace/{it.made.running}/sleep")["workspace"]
    assert slept["status"] == "sleeping"
    assert it.made.site.visit("GET", "/ok").status_code == 200
    it.assert_same_boot(it.made.running)
    it.assert_counting(it.made.running)


def a_restart_brings_the_new_kit(it: Upgraded) -> None:
    it.api.power(it.made.running, "restart")
    assert kit_of(it.api, it.made.running) == kit_of(it.api, it.made.stopped)
    assert it.output(it.made.running, f"cat {FILE}") == it.made.running
    until(lambda: it.made.site.visit("GET", "/ok").status_code == 200, 30, "its program answers")
    path = f"/workspace/{it.made.running}/workloads/added"
    until(lambda: it.api.call("GET", path)["workload"]["status"] == "running", 30, "the stored workload runs")


def machines_made_before_are_deleted_wholly(it: Upgraded) -> None:
    it.api.delete_all()
    assert_nothing_is_left_over(it.instance, it.api)


CHECKS: tuple[Callable[[Upgraded], None], ...] = (
    states_are_those_of_before,
    the_running_machine_went_on,
    files_are_written_and_read,
    logs_are_read_and_go_on,
    statistics_are_measured,
    ssh_and_the_public_port_lead_to_it,
    workloads_change,
    the_network_policy_changes,
    the_sandbox_has_commands_terminals_and_watches,
    the_sandbox_has_files_and_searches,
    the_page_is_served_and_deployed_again,
    the_file_is_served,
    the_paused_machine_resumes,
    the_sleeping_machine_wakes_with_its_memory,
    the_stopped_machine_starts_with_its_file,
    a_backup_is_complete,
    usage_is_counted_once,
    charges_agree_with_usage,
    the_machine_sleeps_and_wakes_by_a_request,
    a_restart_brings_the_new_kit,
    machines_made_before_are_deleted_wholly,
)


def _present(made: dict[str, Any]) -> dict[str, Any]:
    """Raises LeftOut."""
    if not made:
        raise LeftOut
    return made


def _visit(it: Upgraded, url: str) -> httpx.Response:
    """As a browser does, for which names below `localhost` are this host."""
    parts = urlsplit(url)
    here = f"http://127.0.0.1:{it.instance.instance.port}{parts.path}"
    return httpx.get(here, headers={"Host": str(parts.hostname)}, trust_env=False, timeout=30)


def _managed(it: Upgraded, name: str) -> str:
    done = it.instance.command("manage", "--", name)
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    return done.stdout


def _metered_seconds(it: Upgraded, workspace_id: str) -> float:
    found = it.instance.query(
        "SELECT sum(memory_mb_ms) FROM workspaces_meterrecord JOIN workspaces_metered"
        f" ON workspaces_metered.id = metered_id WHERE workspace_id = '{workspace_id}'"
    )
    return float(found[0][0] or 0) / MEMORY_MB / 1000
