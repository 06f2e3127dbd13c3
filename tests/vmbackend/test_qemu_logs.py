"""QEMU's log files: removed with their machine, and bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.vmbackend.mock_factory import make_settings
from vmbackend.libvirt.domain import name_for
from vmbackend.libvirt.qemu_logs import MAX_BYTES, QemuLogs

INSTANCE = "abcdef"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "root" / "log" / "qemu"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def logs(tmp_path: Path, folder: Path) -> QemuLogs:
    return QemuLogs(make_settings(tmp_path, uri=f"qemu:///embed?root={tmp_path / 'root'}", instance=INSTANCE))


def write(folder: Path, machine_id: str, *, instance: str = INSTANCE, ending: str = "", size: int = 1) -> Path:
    path = folder / f"{name_for(instance, machine_id)}.log{ending}"
    path.write_bytes(b"x" * size)
    return path


def test_a_machines_log_is_removed_with_it_and_no_others(logs: QemuLogs, folder: Path) -> None:
    mine = [write(folder, "ws_a"), write(folder, "ws_a", ending=".0")]
    others = [write(folder, "ws_ab"), write(folder, "ws_a", instance="fedcba")]
    logs.remove("ws_a")
    logs.remove("ws_a")
    assert [path.exists() for path in (*mine, *others)] == [False, False, True, True]


def test_the_logs_of_machines_that_are_gone_are_removed(logs: QemuLogs, folder: Path) -> None:
    kept, gone, foreign = write(folder, "ws_a"), write(folder, "ws_b"), write(folder, "ws_b", instance="fedcba")
    logs.remove_others({"ws_a"})
    assert [path.exists() for path in (kept, gone, foreign)] == [True, False, True]


def test_a_log_that_is_too_large_is_emptied_while_qemu_writes_it(logs: QemuLogs, folder: Path) -> None:
    large, small = write(folder, "ws_a", size=MAX_BYTES + 1), write(folder, "ws_b", size=MAX_BYTES)
    descriptor = os.open(large, os.O_WRONLY | os.O_APPEND)
    logs.limit_sizes()
    os.write(descriptor, b"next")
    os.close(descriptor)
    assert large.read_bytes() == b"next"
    assert small.stat().st_size == MAX_BYTES


def test_a_folder_that_does_not_exist_holds_no_logs(tmp_path: Path) -> None:
    logs = QemuLogs(make_settings(tmp_path, uri=f"qemu:///embed?root={tmp_path / 'none'}"))
    logs.remove("ws_a")
    logs.remove_others(set())
    logs.limit_sizes()
