"""A second machine with the name of a running host, and a second beat, beside real processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.beat import WAITS
from supervise.configuration import process_environment
from supervise.instance import ROOT
from tests.vm.client import until
from tests.vm.instances import TestInstance, new_instance


@pytest.fixture
def second(served: TestInstance) -> Iterator[TestInstance]:
    """A state folder of its own, as another machine has it, on the same database."""
    settings = {
        "PLATFORM_DATABASE_URL": served.settings.database_url,
        "PLATFORM_SECRET_KEY": served.settings.secret_key,
        "PLATFORM_VM_BACKEND": "fake",
        "PLATFORM_HOST_NAME": served.settings.host_name,
    }
    with new_instance(images=False, **settings) as made:
        made.settings = made.instance.settings(settings)
        yield made


def test_another_machine_does_not_start_with_the_name_of_a_running_host(
    served: TestInstance, second: TestInstance
) -> None:
    done = second.command("prepare")
    assert done.returncode == 1, done.stdout
    assert f"Another machine runs the platform as the host '{served.settings.host_name}'" in done.stderr
    assert done.stderr.count("\n") == 1
    (claim,) = served.query("SELECT claim FROM vmbackend_host")[0]
    number = (served.state / "host.id").read_text()
    assert claim.split(" ")[0] == number != (second.state / "host.id").read_text()


def test_a_killed_vmhost_has_its_name_at_once(served: TestInstance) -> None:
    (before,) = served.query("SELECT last_seen_at FROM vmbackend_host")[0]
    served.kill("vmhost")
    until(lambda: served.query("SELECT last_seen_at FROM vmbackend_host")[0][0] != before, 30, "it reports again")


def test_a_second_beat_waits_for_the_end_of_the_first(served: TestInstance, tmp_path: Path) -> None:
    environment = process_environment(served.instance, served.settings) | {"PLATFORM_ROLE": "beat"}
    log = tmp_path / "log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "config.serve_tasks", "beat", "--pidfile=", "-l", "warning"]
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=output, stderr=output)
    try:
        until(lambda: WAITS in log.read_text(), 60, "it says that it waits")
    finally:
        process.terminate()
        process.wait(60)
