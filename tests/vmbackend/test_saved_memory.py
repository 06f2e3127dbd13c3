"""The file of a sleeping machine's memory and its seal, without any machine."""

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
def test_a_partial_file_is_told_from_a_whole_one(files: MachineDir, content: bytes | None, whole: bool):
    if content is not None:
        files.memory.write_bytes(content)
    assert SavedMemory(files).is_complete is whole


@pytest.mark.parametrize("content", [b"", WHOLE[:-1], b"x" + WHOLE[1:], PARTIAL])
def test_a_sealed_file_that_changed_is_still_saved_memory_but_not_sound(files: MachineDir, content: bytes):
    files.memory.write_bytes(WHOLE)
    memory = SavedMemory(files)
    memory.write_checksum()
    assert memory.matches_checksum()
    files.memory.write_bytes(content)
    assert memory.is_complete
    assert not memory.matches_checksum()


def test_memory_does_not_fit_a_disk_that_was_used_since(files: MachineDir):
    files.memory.write_bytes(WHOLE)
    files.data_disk.write_bytes(b"disk")
    memory = SavedMemory(files)
    memory.write_checksum()
    assert memory.matches_checksum()
    files.data_disk.write_bytes(b"used")
    os.utime(files.data_disk, ns=(1, 1))
    assert not memory.matches_checksum()


def test_nothing_is_left_of_what_is_dropped(files: MachineDir):
    files.memory.write_bytes(WHOLE)
    memory = SavedMemory(files)
    memory.write_checksum()
    memory.drop()
    memory.drop()
    assert list(files.path.iterdir()) == []


def test_sealing_what_was_removed_meanwhile_is_nothing(files: MachineDir):
    SavedMemory(files).write_checksum()
    assert list(files.path.iterdir()) == []


def test_where_files_cannot_be_written_it_is_told(files: MachineDir):
    files.memory.mkdir()
    with pytest.raises(BackendUnavailable):
        SavedMemory(files).write_checksum()
    with pytest.raises(BackendUnavailable):
        SavedMemory(files).drop()
