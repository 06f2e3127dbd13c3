"""Parts of boot templates that need no machine: save files, identities, the store."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vmbackend.libvirt.identity import give_identity, identity_values, rename_values, shape_of
from vmbackend.libvirt.save_file import encode_beginning, read_save_file, replaced_description
from vmbackend.libvirt.store import FOLDER, Store, StoredMemory
from vmbackend.libvirt.templates import Templates

from .mock_factory import make_settings

STREAM = os.urandom(3 << 20)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "memory"
    path.write_bytes(encode_beginning("<domain/>", b"<cookie/>") + STREAM)
    return path


def test_a_save_file_is_read_as_it_was_written(saved: Path) -> None:
    found = read_save_file(saved)
    assert (found.xml, found.cookie) == ("<domain/>", b"<cookie/>")
    assert saved.read_bytes()[found.stream_at :] == STREAM


def test_padding_after_the_cookie_is_no_part_of_it(tmp_path: Path) -> None:
    """libvirt leaves room for a longer definition."""
    data = b"<domain/>\0<cookie/>\0".ljust(4096, b"\0")
    path = tmp_path / "memory"
    path.write_bytes(struct.pack("=16s19I", b"LibvirtQemudSave", 2, len(data), 1, 0, 10, *[0] * 14) + data + b"stream")
    found = read_save_file(path)
    assert (found.xml, found.cookie, found.stream_at) == ("<domain/>", b"<cookie/>", 92 + 4096)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"LibvirtQemudPart" + data[16:],
        lambda data: data[:16] + struct.pack("=I", 3) + data[20:],
        lambda data: data[:28] + struct.pack("=I", 1) + data[32:],
        lambda data: data[:50],
        lambda data: data[:95],
        lambda data: b"",
    ],
    ids=["partial", "another version", "compressed", "cut in the head", "cut in the description", "empty"],
)
def test_what_is_no_save_file_is_refused(saved: Path, change: Callable[[bytes], bytes]) -> None:
    saved.write_bytes(change(saved.read_bytes()))
    with pytest.raises(ValueError, match="save file"):
        read_save_file(saved)


def test_a_pipe_gives_the_same_stream_under_another_definition(saved: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    expected = encode_beginning("<domain><other/></domain>", b"<cookie/>") + STREAM
    with replaced_description(saved, "<domain><other/></domain>", pipe):
        assert pipe.stat().st_mode & 0o777 == 0o600
        with pipe.open("rb") as reader:
            assert reader.read(len(expected)) == expected
    assert not pipe.exists()


def test_a_pipe_that_nobody_reads_ends_with_its_block(saved: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(RuntimeError), replaced_description(saved, "<domain/>", tmp_path / "pipe"):
        raise RuntimeError("libvirt refused it")
    assert time.monotonic() - began < 5
    assert list(tmp_path.iterdir()) == [saved]


DEFINITION = """<domain type="qemu"><name>{name}</name><uuid>{uuid}</uuid>
<metadata><m:machine xmlns:m="urn:microvm-workspaces:machine" instance="abc" id="{name}"/></metadata>
<os><cmdline>quiet tsc_early_khz={khz}</cmdline></os><memory unit="KiB">{memory}</memory>
<devices>
<disk><source file="/images/{image}"/><readonly/></disk><disk><source file="/m/{name}/data.raw"/></disk>
<interface><mac address="{mac}"/><target dev="tap{name}"/></interface>
<serial><source path="/m/{name}/console"/></serial>
<channel><source mode="bind" path="/m/{name}/agent"/><target type="virtio" name="agent"/></channel>
</devices>
<seclabel model="dac" type="static"><label>+{uid}:+{uid}</label>{more}</seclabel></domain>"""
ONE = {"name": "a", "uuid": "1", "khz": 2100000, "memory": 1, "image": "x", "mac": "02:00", "uid": 7, "more": ""}
OTHER = ONE | {"name": "b", "uuid": "2", "khz": 2100003, "image": "y", "mac": "02:01", "uid": 8}


def test_two_machines_of_one_size_have_the_same_shape() -> None:
    one, other = DEFINITION.format(**ONE), DEFINITION.format(**OTHER)
    assert one != other
    assert shape_of(one) == shape_of(other)
    assert shape_of(one) != shape_of(DEFINITION.format(**ONE | {"memory": 2}))


def test_a_definition_takes_the_identity_of_another() -> None:
    process = DEFINITION.format(**ONE | {"more": "<imagelabel>+7:+7</imagelabel>"})
    taken = give_identity(process, identity_values(DEFINITION.format(**OTHER)))
    assert identity_values(taken) == identity_values(DEFINITION.format(**OTHER))
    assert "+7" not in taken
    assert dict(identity_values(rename_values(taken, {"mac": "02:02"})))["mac"] == "02:02"


def test_definitions_with_other_devices_are_not_mixed() -> None:
    other = DEFINITION.format(**OTHER).replace('<serial><source path="/m/b/console"/></serial>', "")
    with pytest.raises(ValueError, match="different places"):
        give_identity(DEFINITION.format(**ONE), identity_values(other))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    made.open()
    return made


def write(path: Path) -> None:
    path.write_bytes(STREAM)


def test_an_entry_is_found_unchanged_by_the_next_process(store: Store, tmp_path: Path) -> None:
    made = store.add("boot_1", {"qemu": 7}, write)
    again = Store(tmp_path)
    again.open()
    assert again.find("boot_1") == made
    assert made.is_unchanged()
    assert made.memory.stat().st_mode & 0o777 == 0o400


@pytest.mark.parametrize("change", ["byte", "cut", "gone"])
def test_memory_that_changed_is_noticed(store: Store, change: str) -> None:
    made = store.add("boot_1", {}, write)
    made.memory.chmod(0o600)
    if change == "byte":
        data = bytearray(STREAM)
        data[1 << 20] ^= 1
        made.memory.write_bytes(data)
    elif change == "cut":
        os.truncate(made.memory, len(STREAM) - 1)
    else:
        made.memory.unlink()
    assert not made.is_unchanged()


def test_an_entry_whose_writer_failed_or_died_is_none(store: Store, tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        write(path)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="space"):
        store.add("boot_1", {}, fail)
    assert list((tmp_path / FOLDER).iterdir()) == []
    dead = tmp_path / FOLDER / ".new-0123"
    dead.mkdir()
    write(dead / "memory")
    store.open()
    assert (store.find("boot_1"), store.names_by_use(""), dead.exists()) == (None, [], False)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": 1}'])
def test_an_entry_that_cannot_be_read_is_none_and_can_be_removed(store: Store, text: str) -> None:
    (store.add("boot_1", {}, write).path / "manifest.json").write_text(text)
    assert store.find("boot_1") is None
    assert store.names_by_use("") == ["boot_1"]
    store.remove("boot_1")
    store.remove("boot_1")
    assert store.names_by_use("") == []


def test_entries_are_listed_by_their_last_use(store: Store) -> None:
    for number in range(3):
        os.utime(store.add(f"boot_{number}", {}, write).path, (number, number))
    store.note_use("boot_0")
    store.note_use("boot_9")
    assert store.names_by_use("") == ["boot_0", "boot_2", "boot_1"]


def test_a_removed_entry_stays_readable_for_a_load_that_has_it_open(store: Store) -> None:
    made = store.add("boot_1", {}, write)
    with made.memory.open("rb") as file:
        store.remove("boot_1")
        assert file.read() == STREAM


@pytest.fixture
def template(store: Store) -> StoredMemory:
    """A template that was made before."""
    return store.add("boot_1", {"cpus": 1, "memory_mb": 192}, write)


@pytest.mark.parametrize(
    ("loads", "left"),
    [
        ("a- a- a- a-", True),
        ("a- b- a- b-", True),
        ("a- b- c+ a- b-", True),
        ("a- b- c-", False),
        ("a- a- b- c-", False),
        ("c+ a- b- c-", False),
    ],
)
def test_a_template_goes_after_failures_of_three_machines_in_a_row(
    template: StoredMemory, store: Store, tmp_path: Path, loads: str, left: bool
) -> None:
    """A machine that no template can be loaded for is started again and again: it takes it from no other one."""
    unused: Any = None  # for making one
    templates = Templates(make_settings(tmp_path, machines_dir=tmp_path), unused, unused)
    for machine_id, result in loads.split():
        templates.record_load(template, machine_id, failed=result == "-")
    assert (store.find("boot_1") is not None) is left
