"""Snapshots that another host sends: one as this host writes it is received, whatever else is in the folder is not."""

from __future__ import annotations

import json
import os
import shutil
import stat
import struct
import subprocess
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vmbackend.copies import StoredSnapshot
from vmbackend.errors import BackendUnavailable, CapacityExceeded, SnapshotIncompatible
from vmbackend.libvirt.record import Layer
from vmbackend.libvirt.save_file import encode_beginning, read_save_file
from vmbackend.libvirt.snapshot_store import PREFIX, SnapshotStore

from .mock_factory import make_settings
from .test_hostile_layers import name_backing_file, name_data_file

MIB = 1 << 20
DISK_MB = 64
ID = "one"
XML = "<domain type='qemu'><devices><emulator>/of/the/other/host</emulator></devices></domain>"
STREAM = b"stream of QEMU" * 5000
NEEDS: dict[str, Any] = {
    "cpus": 1,
    "memory_mb": 192,
    "shape": "a" * 64,
    "qemu": 7_002_000,
    "libvirt": 9_000_000,
    "cpu": "b" * 16,
    "base_bytes": 1 << 30,
    "machine": "pc-q35-7.2",
    "accelerator": "qemu",
    "image": "sha256:" + "c" * 64,
    "base": "d" * 32,
    "kit": "6.1.0-1a2b",
}
Change = Callable[[Path], None]


def make_store(folder: Path) -> SnapshotStore:
    folder.mkdir()
    settings = make_settings(folder)
    settings.machines_dir.mkdir()
    store = SnapshotStore(settings, SimpleNamespace(connection=None))  # type: ignore[arg-type]
    store.store.open()
    return store


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a snapshot of another host."""
    store = make_store(tmp_path_factory.mktemp("hosts") / "source")
    layers = (Layer("disk-0.raw", "raw"), Layer("disk-1.qcow2", "qcow2"))
    with store.store.writing() as aside:
        (aside / "memory").write_bytes(encode_beginning(XML, b"<cookie/>") + STREAM)
        with (aside / "disk-0.raw").open("wb") as disk:
            disk.truncate(DISK_MB * MIB)
        make_layer(aside / "disk-1.qcow2")
        return store.store.publish(aside, PREFIX + ID, NEEDS, layers, DISK_MB).path


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return make_store(tmp_path / "here")


def make_layer(path: Path, size: str = f"{DISK_MB}M", *options: str) -> None:
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *options, str(path), size], check=True)


def receive(store: SnapshotStore, source: Path, change: Change = lambda _: None) -> StoredSnapshot:
    """Receive a copy of the source's files as the other host has changed them."""

    def fetch(folder: Path) -> None:
        for path in source.iterdir():
            shutil.copy2(path, folder / path.name)
            (folder / path.name).chmod(0o666)
        change(folder)

    return store.receive(ID, fetch, 1)


def access(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


def test_what_a_host_wrote_is_received_as_this_hosts_own(store: SnapshotStore, source: Path) -> None:
    made = receive(store, source, lambda folder: folder.chmod(0o777))
    entry, own = store.find_entry(ID), (os.geteuid(), os.getegid())
    assert made == store.find(ID)
    assert (made.memory, made.disk_mb) == (True, DISK_MB)
    assert made.made_at == json.loads((source / "manifest.json").read_text())["made_at"]
    assert entry.needs == NEEDS
    assert entry.layers == (Layer("disk-0.raw", "raw"), Layer("disk-1.qcow2", "qcow2"))
    assert entry.is_unchanged()
    assert access(entry.path) == (*own, 0o700)
    assert access(entry.memory) == (*own, 0o400)
    assert {access(entry.path / layer.file) for layer in entry.layers} == {(*own, 0o444)}
    assert sorted(path.name for path in entry.path.iterdir()) == sorted(path.name for path in source.iterdir())
    assert store.received_ids() == frozenset()


def test_nothing_of_what_its_memory_says_of_its_domain_is_kept(store: SnapshotStore, source: Path) -> None:
    receive(store, source)
    memory = store.find_entry(ID).memory
    saved = read_save_file(memory)
    assert saved.is_foreign
    assert saved.cookie == b""
    content = memory.read_bytes()
    assert content[saved.stream_at :] == STREAM
    assert b"emulator" not in content
    assert not read_save_file(source / "memory").is_foreign


def test_a_received_snapshot_can_go_on_to_another_host(store: SnapshotStore, source: Path, tmp_path: Path) -> None:
    receive(store, source)
    third = make_store(tmp_path / "third")
    assert receive(third, store.find_entry(ID).path).memory


def test_files_that_an_interrupted_copy_left_are_no_part_of_it(store: SnapshotStore, source: Path) -> None:
    receive(store, source, lambda folder: (folder / ".memory.aB3dE9").write_bytes(b"part"))
    assert not (store.find_entry(ID).path / ".memory.aB3dE9").exists()


def test_what_was_copied_outlives_a_restart(store: SnapshotStore, source: Path) -> None:
    folder = store.store.incoming(PREFIX + ID)
    folder.mkdir()
    (folder / "memory").write_bytes(b"part")
    store.store.open()
    assert store.received_ids() == {ID}
    assert (folder / "memory").exists()
    for _ in range(2):
        store.drop_received(ID)
    assert store.received_ids() == frozenset()
    assert receive(store, source).memory


def test_what_no_host_copies_is_gone_before_the_copy_goes_on(
    store: SnapshotStore, source: Path, tmp_path: Path
) -> None:
    """A copy would be written through a link that an earlier one has left."""
    (tmp_path / "secret").write_bytes(b"of the host")

    def interrupted(folder: Path) -> None:
        (folder / "memory").symlink_to(tmp_path / "secret")
        (folder / "disk-0.raw").mkdir()
        raise BackendUnavailable("The other host does not answer.")

    with pytest.raises(BackendUnavailable):
        store.receive(ID, interrupted, 1)
    assert receive(store, source).memory
    assert (tmp_path / "secret").read_bytes() == b"of the host"


def test_without_room_no_folder_is_made(store: SnapshotStore) -> None:
    with pytest.raises(CapacityExceeded):
        store.receive(ID, lambda _folder: None, 1 << 60)
    assert store.received_ids() == frozenset()


def edit(**changes: Any) -> Change:
    """Return what changes the manifest."""

    def change(folder: Path) -> None:
        path = folder / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def text(content: str) -> Change:
    return lambda folder: (folder / "manifest.json").write_text(content) and None


def replaced(name: str, make: Callable[[Path], Any]) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return change


def secret_of(path: Path) -> Path:
    """Return the file of the host that hostile ones point to."""
    return path.parents[4] / "secret"


def layers(*names: str, kind: str = "qcow2") -> Change:
    return edit(layers=[{"file": "disk-0.raw", "format": "raw"}, *({"file": name, "format": kind} for name in names)])


def many_layers(folder: Path) -> None:
    for number in (2, 3):
        make_layer(folder / f"disk-{number}.qcow2")
    layers("disk-1.qcow2", "disk-2.qcow2", "disk-3.qcow2")(folder)


def poke(place: int, content: bytes, name: str = "disk-1.qcow2") -> Change:
    def change(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.seek(place)
            file.write(content)

    return change


def memory_of(content: bytes) -> Change:
    """Return what puts other memory into the place, with a manifest that is right."""

    def change(folder: Path) -> None:
        (folder / "memory").write_bytes(content)
        edit(memory_bytes=len(content), memory_crc32=zlib.crc32(content))(folder)

    return change


def head(length: int, version: int = 2, compressed: int = 0) -> bytes:
    return struct.pack("=16s19I", b"LibvirtQemudSave", version, length, 0, compressed, *[0] * 15)


HOSTILE: Mapping[str, Change] = {
    "a link for a layer": replaced("disk-1.qcow2", lambda path: path.symlink_to(secret_of(path))),
    "a link for the memory": replaced("memory", lambda path: path.symlink_to(secret_of(path))),
    "a link for the manifest": replaced("manifest.json", lambda path: path.symlink_to(secret_of(path))),
    "a second name of a file": replaced("disk-0.raw", lambda path: os.link(secret_of(path), path)),
    "a pipe": replaced("disk-1.qcow2", os.mkfifo),
    "a pipe for the manifest": replaced("manifest.json", os.mkfifo),
    "a socket or device": replaced("memory", lambda path: os.mknod(path, stat.S_IFSOCK | 0o600)),
    "a folder": replaced("disk-1.qcow2", Path.mkdir),
    "another file": lambda folder: (folder / "more").touch(),
    "another folder": lambda folder: (folder / ".rsync-partial").mkdir(),
    "a missing layer": lambda folder: (folder / "disk-1.qcow2").unlink(),
    "missing memory": lambda folder: (folder / "memory").unlink(),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "a layer elsewhere": layers("../../../secret"),
    "an absolute layer": layers("/etc/shadow"),
    "a layer of another name": layers("disk-2.qcow2"),
    "one layer twice": layers("disk-1.qcow2", "disk-1.qcow2"),
    "the manifest as a layer": layers("manifest.json"),
    "another format": layers("disk-1.qcow2", kind="vmdk"),
    "raw above raw": layers("disk-1.raw", kind="raw"),
    "no layer": edit(layers=[]),
    "layers of another type": edit(layers={"file": "disk-0.raw"}),
    "too many layers": many_layers,
    "another checksum": edit(memory_crc32=1),
    "another size": edit(memory_bytes=5),
    "memory that is said not to be": edit(memory_bytes=0, memory_crc32=0),
    "a negative size": edit(memory_bytes=-1),
    "true for a number": edit(memory_crc32=True),
    "a huge disk": edit(disk_mb=1 << 40),
    "a disk smaller than its layers": edit(disk_mb=DISK_MB - 1),
    "a fraction of a disk": edit(disk_mb=64.5),
    "another format of manifests": edit(format=2),
    "an unknown fact": edit(more=1),
    "a time without end": text('{"made_at": Infinity}'),
    "a time before all": edit(made_at=-1),
    "a long manifest": text(json.dumps({"format": 1, "more": "x" * (64 << 10)})),
    "a deep manifest": text("[" * 60_000),
    "long numbers": text('{"format": ' + "9" * 60_000 + "}"),
    "a list for a manifest": text("[]"),
    "no text": lambda folder: (folder / "manifest.json").write_bytes(b"\xff\xfe") and None,
    "a kit elsewhere": edit(needs=NEEDS | {"kit": "../../../etc"}),
    "an image that is none": edit(needs=NEEDS | {"image": "../image"}),
    "needs of other types": edit(needs=NEEDS | {"qemu": "7"}),
    "another type of machine": edit(needs=NEEDS | {"machine": "microvm"}),
    "an unknown need": edit(needs=NEEDS | {"more": 1}),
    "no needs": edit(needs={}),
    "a backing file": lambda folder: name_backing_file(folder / "disk-1.qcow2", secret_of(folder / "x")),
    "the offset of a backing file alone": poke(8, struct.pack(">Q", 512)),
    "a data file": lambda folder: name_data_file(folder / "disk-1.qcow2", secret_of(folder / "x")),
    "an unknown incompatible feature": poke(72, struct.pack(">Q", 1 << 40)),
    "an automatic feature": poke(88, struct.pack(">Q", 2)),
    "an encrypted layer": poke(32, struct.pack(">I", 2)),
    "a layer with snapshots": poke(60, struct.pack(">I", 1)),
    "an old layer": lambda folder: make_layer(folder / "disk-1.qcow2", f"{DISK_MB}M", "-o", "compat=0.10"),
    "a layer that is no image": poke(0, b"\0\0\0\0"),
    "a layer of another image format": poke(0, b"KDMV"),
    "a short layer": lambda folder: os.truncate(folder / "disk-1.qcow2", 100),
    "an empty layer": lambda folder: os.truncate(folder / "disk-1.qcow2", 0),
    "a layer larger than the disk": lambda folder: make_layer(folder / "disk-1.qcow2", "1T"),
    "a long layer": lambda folder: os.truncate(folder / "disk-1.qcow2", 1 << 30),
    "a long raw layer": lambda folder: os.truncate(folder / "disk-0.raw", DISK_MB * MIB + 1),
    "memory of another format": memory_of(b"x" * 5000),
    "unfinished memory": memory_of(b"LibvirtQemudPart" + b"x" * 5000),
    "compressed memory": memory_of(head(1000, compressed=1) + b"x" * 5000),
    "memory of another version": memory_of(head(1000, version=3) + b"x" * 5000),
    "a description without end": memory_of(head((1 << 32) - 1) + b"x" * 5000),
    "a description longer than its file": memory_of(head(8000) + b"x" * 5000),
    "a description without room": memory_of(head(3) + b"x" * 5000),
    "memory that ends in its head": memory_of(b"LibvirtQemudSave"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_anything_else_is_refused_and_removed(store: SnapshotStore, source: Path, tmp_path: Path, name: str) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"of the host")
    secret.chmod(0o640)
    before = secret.stat()
    with pytest.raises(SnapshotIncompatible) as refused:
        receive(store, source, HOSTILE[name])
    assert str(tmp_path) not in refused.value.message
    assert store.find(ID) is None
    assert store.received_ids() == frozenset()
    after = secret.stat()
    assert secret.read_bytes() == b"of the host"
    assert (after.st_mode, after.st_uid, after.st_mtime_ns) == (before.st_mode, before.st_uid, before.st_mtime_ns)
    assert receive(store, source).memory


@pytest.mark.parametrize("snapshot_id", ["", "../one", "One", "a" * 81, ".new-one", "one/two"])
def test_an_id_that_no_snapshot_has_makes_no_folder(store: SnapshotStore, snapshot_id: str) -> None:
    with pytest.raises(SnapshotIncompatible):
        store.receive(snapshot_id, lambda _folder: None, 1)
    store.drop_received(snapshot_id)
    assert store.received_ids() == frozenset()


@pytest.mark.parametrize(
    "needs",
    [
        None,
        [],
        "needs",
        {"cpus": 1},
        NEEDS | {"more": 1},
        NEEDS | {"cpus": True},
        NEEDS | {"cpus": 10**30},
        NEEDS | {"kit": "../.."},
        NEEDS | {"kit": "x" * (1 << 20)},
        NEEDS | {"image": {"a": 1}},
        NEEDS | {"qemu": None},
        {str(number): 0 for number in range(10_000)},
    ],
)
def test_needs_that_no_host_writes_differ(store: SnapshotStore, needs: Any) -> None:
    (found,) = store.compare_needs(needs, "qemu")
    assert found.what == "description of the memory"
