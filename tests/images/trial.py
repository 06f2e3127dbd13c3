"""One image on a real machine: created, running, answering, stopped by its own signal, deleted."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.images.recipe import Probe, Recipe
from tests.vm.client import BUSY, Api
from tests.vm.instances import TestInstance
from vmbackend.bootlog import rotated_path
from vmbackend.libvirt.record import MachineDir

LOG = "/upper/var/log/workspace/cmd.log"
ANSWER_SECONDS = 5.0
# Every process of the machine as `arguments|stat`, by nothing but the shell of the guest kit: an image may have none.
PROCESSES = 'for p in /proc/[0-9]*; do a= s=; read -r a <$p/cmdline; read -r s <$p/stat; echo "$a|$s"; done 2>/dev/null'
SHELL = "/run/kit/bin/busybox"
# A program that has failed is started again after 5 s; its log's process begins at the same time as the first one.
RESTART_SECONDS = 4.5
TICKS = 100  # of a process's start, a second
START_FIELD = 19  # after the name, in `stat`


@dataclass
class Result:
    """What was seen; `faults` is empty where everything is as it should be."""

    name: str
    create_seconds: float = 0.0
    answer_seconds: float = 0.0
    stop_seconds: float = 0.0
    faults: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    log: str = ""


def run_trial(instance: TestInstance, api: Api, recipe: Recipe, image: str) -> Result:
    """Never raises for what the image or the platform does."""
    result, begun = Result(recipe.name), time.monotonic()
    workspace_id = ""
    with noted(result):
        sizes = {
            "memory_mb": recipe.memory_mb,
            "disk_size_mb": recipe.disk_mb,
            "env": [f"{name}={value}" for name, value in recipe.env.items()],
        }
        made = api.create(image, **sizes, body={"ready_timeout_seconds": 280})
        workspace_id = made["id"]
        result.create_seconds = time.monotonic() - begun
        result.answer_seconds = wait_for_answer(made["ip"], recipe)
        check_first_start(api, workspace_id)
        begun = time.monotonic()
        api.power(workspace_id, "stop")
        api.reaches(workspace_id, "stopped")
        result.stop_seconds = time.monotonic() - begun
    if not workspace_id:
        return result
    if result.faults:
        with suppress(Exception):
            api.power(workspace_id, "stop")
    with noted(result):
        look_at_end(instance, recipe, workspace_id, result)
    with noted(result):
        api.delete(workspace_id)
    return result


@contextmanager
def noted(result: Result) -> Iterator[None]:
    """Whatever goes wrong in the block is a fault of this image, and the next one is tried."""
    try:
        yield
    except Exception as error:
        kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
        result.faults.append(f"{kind}{error}"[:600])


def check_first_start(api: Api, workspace_id: str) -> None:
    """Raises AssertionError where the main program does not run, or was started again after it had failed."""
    listed = api.output(workspace_id, [SHELL, "sh", "-c", PROCESSES], user="root")
    gap = start_gap(listed)
    assert gap is not None, f"the main program does not run while its port answers: {listed[-300:]}"
    assert gap < RESTART_SECONDS, f"the main program was started again {gap:.0f} s after its log"


def start_gap(listed: str) -> float | None:
    """Seconds between the starts of the main program's log and of the program, in what `PROCESSES` prints."""
    processes = []  # arguments, id, parent's id, start
    for line in listed.splitlines():
        arguments, _, status = line.rpartition("|")
        fields = status.rpartition(")")[2].split()
        if len(fields) > START_FIELD:
            processes.append((arguments, status.split(" ", 1)[0], fields[1], int(fields[START_FIELD]) / TICKS))
    supervisor = next((pid for arguments, pid, *_ in processes if arguments == "runsvmain"), None)
    children = [(arguments, begun) for arguments, _, parent, begun in processes if parent == supervisor]
    if len(children) < len(("the log", "the program")) or any("finish" in arguments for arguments, _ in children):
        return None
    begun = [start for _, start in children]
    return max(begun) - min(begun)


def wait_for_answer(ip: str, recipe: Recipe) -> float:
    """Seconds until the program answered. Raises AssertionError with the last answer."""
    begun, last = time.monotonic(), b""
    while time.monotonic() - begun < recipe.seconds * BUSY:
        with suppress(OSError):
            last = ask(ip, recipe.probe)
            if recipe.probe.expect in last:
                return time.monotonic() - begun
        time.sleep(0.5)
    raise AssertionError(f"port {recipe.probe.port} does not answer as it should; last: {last[:200]!r}")


def ask(ip: str, probe: Probe) -> bytes:
    """What the port answers, until it has what is expected, or ends."""
    found = b""
    with socket.create_connection((ip, probe.port), timeout=ANSWER_SECONDS) as connection:
        connection.sendall(probe.send)
        while probe.expect not in found and len(found) < 1 << 16:
            block = connection.recv(4096)
            if not block:
                break
            found += block
    return found


def look_at_end(instance: TestInstance, recipe: Recipe, workspace_id: str, result: Result) -> None:
    """In the boot log, and in the program's log on the disk of the machine, which is off."""
    files = MachineDir(instance.settings.machines_dir, workspace_id)
    logs = [
        path.read_text(errors="replace") for path in (rotated_path(files.boot_log), files.boot_log) if path.exists()
    ]
    boot = "".join(logs)
    result.changes = re.findall(r" image: (.*)", boot)
    result.faults += [
        f"boot log: {line}" for line in re.findall(r"kit: (programs have not ended .*|cannot make .*)", boot)
    ]
    argv = ["debugfs", "-R", f"cat {LOG}", str(files.data_disk)]
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    result.log = done.stdout
    if recipe.ended not in result.log:
        last = result.log.strip().rpartition("\n")[2][-300:]
        result.faults.append(f"the program does not say {recipe.ended!r} at its end; its last line: {last}")
