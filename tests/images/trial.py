"""One image on a real machine: created, running, answering, stopped by its own signal, deleted."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field

from tests.images.recipe import Probe, Recipe
from tests.vm.client import BUSY, Api
from tests.vm.instances import TestInstance
from vmbackend.bootlog import rotated_path
from vmbackend.libvirt.record import MachineDir

LOG = "/upper/var/log/workspace/cmd.log"
ANSWER_SECONDS = 5.0


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
    try:
        sizes = {
            "memory_mb": recipe.memory_mb,
            "disk_size_mb": recipe.disk_mb,
            "env": [f"{name}={value}" for name, value in recipe.env.items()],
        }
        made = api.create(image, **sizes, body={"ready_timeout_seconds": 280})
        workspace_id = made["id"]
        result.create_seconds = time.monotonic() - begun
        result.answer_seconds = wait_for_answer(made["ip"], recipe)
        begun = time.monotonic()
        api.power(workspace_id, "stop")
        api.reaches(workspace_id, "stopped")
        result.stop_seconds = time.monotonic() - begun
    except AssertionError as error:
        result.faults.append(str(error)[:600])
        with suppress(AssertionError):
            if workspace_id:
                api.power(workspace_id, "stop")
    if workspace_id:
        look_at_end(instance, recipe, workspace_id, result)
        api.delete(workspace_id)
    return result


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
