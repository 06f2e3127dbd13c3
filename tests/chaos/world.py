"""The instance of a run: on a file system of its own, so that its disk can be full while the host's is not."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from supervise import control
from tests.chaos.ledger import WORDS, Ledger
from tests.chaos.receivers import Receivers, receivers_of
from tests.chaos.report import Report
from tests.vm.instances import TestInstance, instance_in

DISK_MB = 3072
INODES = 16384  # few, so that a fault can take them all at once
SETTINGS = {
    # An operation that hangs is past its deadline within the run.
    "PLATFORM_CREATE_SECONDS": "120",
    "PLATFORM_POWER_SECONDS": "60",
    "PLATFORM_DEPLOY_SECONDS": "60",
    "PLATFORM_READY_SECONDS": "60",
    "PLATFORM_STOP_GRACE_SECONDS": "5",
    "PLATFORM_METERING_SECONDS": "10",
    "PLATFORM_DISK_RESERVE_MB": "64",
    "PLATFORM_BOOT_TEMPLATES": "2",
    # The second attempt; the third one comes after five minutes.
    "PLATFORM_WEBHOOK_RETRY_SECONDS": "1",
}
SETTLE_SECONDS = 150.0


@dataclass
class World:
    """What clients, faults and checks share. `folder`: the mount point, above the state folder."""

    folder: Path
    instance: TestInstance
    ledger: Ledger
    report: Report
    credentials: dict[str, dict[str, str]]  # word -> headers

    def bring_up(self) -> None:
        """What an init system does when supervisord has ended: `make up` again, without its demonstration.

        Nothing else starts a killed supervisord. Raises AssertionError where the instance does not serve then.
        """
        if control.supervisor_pid(self.instance.instance) is None:
            self.instance.start()

    def is_supervised(self) -> bool:
        return control.supervisor_pid(self.instance.instance) is not None


@contextmanager
def new_world(report: Report, seed: int) -> Iterator[World]:
    """A started instance with an account for each word and its webhook; all of it is removed at the end."""
    ledger = Ledger()
    with (
        receivers_of(ledger, report, seed) as receivers,
        _own_file_system(DISK_MB) as folder,
        instance_in(folder, **SETTINGS, PLATFORM_PRIVATE_RECEIVERS=receivers.place) as instance,
    ):
        instance.start()
        made = {word: _account(instance, word) for word in WORDS}
        ledger.accounts |= {account["account"]: word for word, account in made.items()}
        headers = {
            word: {"X-Client-ID": account["client_id"], "X-Client-Secret": account["client_secret"]}
            for word, account in made.items()
        }
        for word in WORDS:
            ledger.webhooks[word] = _webhook(instance, headers[word], receivers, word)
        yield World(folder, instance, ledger, report, headers)


def _account(instance: TestInstance, name: str) -> dict[str, str]:
    done = instance.command("manage", "--", "account_create", name, "--plan", "pro", "--json")
    assert done.returncode == 0, done.stderr
    made: dict[str, str] = json.loads(done.stdout)
    return made


def _webhook(instance: TestInstance, headers: dict[str, str], receivers: Receivers, word: str) -> int:
    body = {"url": receivers.url(word), "events": ["*"], "secret": receivers.secret(word)}
    url = f"{instance.settings.base_url}/webhooks"
    answer = httpx.post(url, headers=headers, json=body, timeout=30, trust_env=False)
    assert answer.status_code == 201, answer.text
    made: int = answer.json()["webhook"]["id"]
    return made


@contextmanager
def _own_file_system(megabytes: int) -> Iterator[Path]:
    """A folder in which an ext4 file system of its own is mounted. Its file has no name any more while it is."""
    # Short: socket paths have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="mvi-", dir="/tmp"))
    image = folder.with_suffix(".ext4")
    try:
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", "-N", str(INODES), str(image)], check=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
        image.unlink()
        shutil.rmtree(folder / "lost+found")
        yield folder
    finally:
        image.unlink(missing_ok=True)
        if folder.is_mount():
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
        shutil.rmtree(folder, ignore_errors=True)
