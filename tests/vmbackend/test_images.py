"""From references to base disks: the local store, and how layers become a root file system."""

from __future__ import annotations

import os
import stat
import struct
import tarfile
from pathlib import Path

import pytest

from tests.vmbackend.registry import push
from tests.vmbackend.stores import (
    CONFIG,
    add_file,
    insecure_store,
    layered_image,
    partial_work,
    pull,
    registry,
    rootfs,
    store,
    unpack,
)
from vmbackend.images.build import add_directory_image
from vmbackend.images.store import ImageConfig, ImageStore

__all__ = ["registry", "rootfs", "store"]
pytestmark = pytest.mark.host


def test_a_directory_image_becomes_a_base_disk_with_its_configuration(
    store: ImageStore, rootfs: Path, tmp_path: Path
) -> None:
    digest = add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    image = pull(store, "localhost/tiny")
    assert (image.digest, image.config) == (digest, CONFIG)
    assert image.size_bytes == image.rootfs.stat().st_blocks * 512
    assert (unpack(image, tmp_path / "out") / "etc/passwd").read_text().startswith("root:")
    assert partial_work(tmp_path / "root") == []


def test_modes_owners_links_and_attributes_are_preserved(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    program = rootfs / "program"
    program.write_bytes(b"#!")
    os.chown(program, 123, 456)
    program.chmod(0o4755)
    os.setxattr(program, "user.note", b"unchanged")
    (rootfs / "again").hardlink_to(program)
    (rootfs / "dangling").symlink_to("/nowhere")
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, ImageConfig())
    out = unpack(pull(store, "localhost/tiny"), tmp_path / "out")
    status = (out / "program").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (123, 456, 0o4755)
    assert os.getxattr(out / "program", "user.note") == b"unchanged"
    assert status.st_ino == (out / "again").stat().st_ino
    assert (out / "dangling").readlink() == Path("/nowhere")


def test_file_capabilities_any_owner_and_devices_are_preserved(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    """Owners above 65,535 come from packages that were made under directory accounts."""
    program = rootfs / "program"
    program.write_bytes(b"#!")
    os.chown(program, 1516583083, 2147483000)
    raw_network = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)
    os.setxattr(program, "security.capability", raw_network)
    closed = rootfs / "closed"
    closed.mkdir()
    (closed / "secret").write_text("x")
    (closed / "secret").chmod(0)
    closed.chmod(0)
    os.mknod(rootfs / "disk", 0o600 | stat.S_IFBLK, os.makedev(254, 0))
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, ImageConfig())
    out = unpack(pull(store, "localhost/tiny"), tmp_path / "out")
    status = (out / "program").stat()
    assert (status.st_uid, status.st_gid) == (1516583083, 2147483000)
    assert os.getxattr(out / "program", "security.capability") == raw_network
    assert (out / "closed").stat().st_mode & 0o777 == 0
    assert (out / "closed/secret").read_text() == "x"
    assert stat.S_ISBLK((out / "disk").stat().st_mode)
    assert (out / "disk").stat().st_rdev == os.makedev(254, 0)


def test_a_ready_image_is_returned_at_once(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    first = pull(store, "localhost/tiny")
    made = first.rootfs.stat()
    assert pull(store, "localhost/tiny") == first == store.get(first.digest)
    again = first.rootfs.stat()
    assert (again.st_ino, again.st_mtime_ns) == (made.st_ino, made.st_mtime_ns), "it is not made again"


def test_a_pinned_local_image_outlives_its_tag(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    old = add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    (rootfs / "new").touch()
    new = add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    assert pull(store, "localhost/tiny").digest == new != old
    assert pull(store, f"localhost/tiny@{old}").digest == old


def test_progress_rises_to_100_percent(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    seen: list[tuple[int, str]] = []
    pull(store, "localhost/tiny", progress=lambda percent, text: seen.append((percent, text)))
    percents = [percent for percent, _ in seen]
    assert percents == sorted(percents)
    assert percents[-1] == 100
    assert {text for _, text in seen} >= {"Downloading the image.", "Unpacking the image."}


def test_whiteouts_and_opaque_directories_hide_lower_layers(store: ImageStore, registry: str, tmp_path: Path) -> None:
    def lower(tar: tarfile.TarFile) -> None:
        for name in ("gone", "unchanged", "dir/a", "dir/b", "opaque/old"):
            add_file(tar, name)

    def upper(tar: tarfile.TarFile) -> None:
        for name in (".wh.gone", "dir/.wh.a", "opaque/.wh..wh..opq", "opaque/new"):
            add_file(tar, name, b"")

    layered_image(tmp_path / "made", [lower, upper])
    push(tmp_path / "made", "image", f"{registry}/app:1")
    image = pull(insecure_store(store, tmp_path, registry), f"{registry}/app:1")
    out = unpack(image, tmp_path / "out")
    found = sorted(str(path.relative_to(out)) for path in out.rglob("*") if not path.is_dir())
    assert found == ["dir/b", "opaque/new", "unchanged"]


def test_layers_cannot_write_outside(store: ImageStore, registry: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    def hostile(tar: tarfile.TarFile) -> None:
        add_file(tar, "../../../../../../../../.." + str(outside / "dots"))
        add_file(tar, str(outside / "absolute"))
        add_file(tar, "link", b"", type=tarfile.SYMTYPE, linkname=str(outside))
        add_file(tar, "link/through")
        add_file(tar, "up", b"", type=tarfile.SYMTYPE, linkname="../../../../../../../.." + str(outside))
        add_file(tar, "up/through")

    layered_image(tmp_path / "made", [hostile])
    push(tmp_path / "made", "image", f"{registry}/evil:1")
    before = sorted(tmp_path.iterdir())
    pull(insecure_store(store, tmp_path, registry), f"{registry}/evil:1")
    assert list(outside.iterdir()) == []
    assert sorted(tmp_path.iterdir()) == sorted({*before, tmp_path / "root"})


def test_layers_packed_with_zstd_are_unpacked(store: ImageStore, registry: str, rootfs: Path, tmp_path: Path) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    options = ("--dest-compress-format=zstd", "--format=oci")
    push(tmp_path / "oci", "localhost/tiny:latest", f"{registry}/app:z", *options)
    image = pull(insecure_store(store, tmp_path, registry), f"{registry}/app:z")
    assert (unpack(image, tmp_path / "out") / "etc/passwd").exists()
