"""The file of a sleeping machine's memory and its checksum, without any machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.saved_memory import SavedMemory

PARTIAL = b"LibvirtQemudPart" + b"\0" * 100
WHOLE = b"LibvirtQemudSave" + b"\0" * 100


@pytest.fixture
def files(tmp_path: Path) -> MachineDir:
    made = MachineDir(tmp_path, "m1")
    made.path.mkdir()
    return made


@pytest.mark.parametrize(
    ("content", "whole"), [(None, False), (b"", False), (b"Lib", False), (PARTIAL, False), (WHOLE, True)]
)
def test_a_partial_file_is_not_complete(files: MachineDir, content: bytes | None, whole: bool):
    if content is not None:
        files.memory.write_bytes(content)
    assert SavedMemory(files).is_complete is whole


@pytest.mark.parametrize("content", [b"", WHOLE[:-1], b"x" + WHOLE[1:], PARTIAL])
def test_a_changed_file_is_complete_but_does_not_match_its_checksum(files: MachineDir, content: bytes):
    files.memory.write_bytes(WHOLE)
    memory = SavedMemory(files)
    memory.write_checksum()
    assert memory.matches_checksum()
    files.memory.write_bytes(content)
    assert memory.is_complete
    assert not memory.matches_checksum()


def test_memory_does_not_match_a_disk_modified_later(files: MachineDir):
    files.memory.write_bytes(WHOLE)
    files.data_disk.write_bytes(b"disk")
    memory = SavedMemory(files)
    memory.write_checksum()
    assert memory.matches_checksum()
    files.data_disk.write_bytes(b"used")
    os.utime(files.data_disk, ns=(1, 1))
    assert not memory.matches_checksum()


def test_drop_removes_memory_and_checksum(files: MachineDir):
    files.memory.write_bytes(WHOLE)
    memory = SavedMemory(files)
    memory.write_checksum()
    memory.drop()
    memory.drop()
    assert list(files.path.iterdir()) == []


def test_write_checksum_without_a_memory_file_is_a_no_op(files: MachineDir):
    SavedMemory(files).write_checksum()
    assert list(files.path.iterdir()) == []


def test_a_file_that_cannot_be_written_raises_backend_unavailable(files: MachineDir):
    files.memory.mkdir()
    with pytest.raises(BackendUnavailable):
        SavedMemory(files).write_checksum()
    with pytest.raises(BackendUnavailable):
        SavedMemory(files).drop()
