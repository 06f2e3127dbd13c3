"""What a conversion keeps by other means, leaves out or changes, and that it says so."""

from __future__ import annotations

import os
import stat
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.vmbackend.stores import add_file, layered_image, pull, store, unpack
from vmbackend.errors import ImageBroken
from vmbackend.images import contents
from vmbackend.images.layer_contents import MAX_DEVICES
from vmbackend.images.store import Image, ImageStore

__all__ = ["store"]
pytestmark = pytest.mark.host

Fill = Callable[[tarfile.TarFile], None]


def add_device(tar: tarfile.TarFile, name: str, kind: bytes, major: int, minor: int, mode: int = 0o666) -> None:
    add_file(tar, name, b"", type=kind, devmajor=major, devminor=minor, mode=mode, uid=3, gid=7)


def converted(store: ImageStore, tmp_path: Path, *layers: Fill) -> tuple[Image, Path]:
    """The image of these layers, and its tree."""
    layered_image(tmp_path / "oci", list(layers), "localhost/made:latest")
    image = pull(store, "localhost/made")
    return image, unpack(image, tmp_path / "out")


def test_device_nodes_are_made_where_a_layer_has_them(store: ImageStore, tmp_path: Path) -> None:
    def lower(tar: tarfile.TarFile) -> None:
        add_device(tar, "jail/dev/null", tarfile.CHRTYPE, 1, 3)
        add_device(tar, "disk", tarfile.BLKTYPE, 254, 300, 0o640)
        add_file(tar, "again", b"", type=tarfile.LNKTYPE, linkname="disk")
        add_file(tar, "lib", b"", type=tarfile.SYMTYPE, linkname="usr/lib")
        add_file(tar, "usr/lib/file")
        for name in ("removed", "replaced", "folder/below", "opaque/below"):
            add_device(tar, name, tarfile.CHRTYPE, 1, 5)

    def upper(tar: tarfile.TarFile) -> None:
        add_device(tar, "lib/zero", tarfile.CHRTYPE, 1, 5)
        for name in (".wh.removed", "opaque/.wh..wh..opq", ".wh.folder"):
            add_file(tar, name, b"")
        for name in ("replaced", "folder/below", "removed/below", "opaque/other"):
            add_file(tar, name, b"")
        add_device(tar, "opaque/own", tarfile.CHRTYPE, 1, 8)

    image, out = converted(store, tmp_path, lower, upper)
    assert image.changes == ()
    nodes = {str(path.relative_to(out)): path.lstat() for path in out.rglob("*") if is_device(path)}
    assert {name: (os.major(found.st_rdev), os.minor(found.st_rdev)) for name, found in nodes.items()} == {
        "jail/dev/null": (1, 3),
        "disk": (254, 300),
        "again": (254, 300),
        "usr/lib/zero": (1, 5),
        "opaque/own": (1, 8),
    }
    assert stat.S_ISBLK(nodes["disk"].st_mode)
    assert stat.S_ISCHR(nodes["jail/dev/null"].st_mode)
    assert (nodes["disk"].st_mode & 0o7777, nodes["disk"].st_uid, nodes["disk"].st_gid) == (0o640, 3, 7)
    assert sorted(path.name for path in out.rglob("*") if path.is_file()) == [
        "below",
        "below",
        "file",
        "other",
        "replaced",
    ]


def is_device(path: Path) -> bool:
    return stat.S_ISCHR(path.lstat().st_mode) or stat.S_ISBLK(path.lstat().st_mode)


def test_devices_that_cannot_be_made_leave_no_file_and_are_named(store: ImageStore, tmp_path: Path) -> None:
    def fill(tar: tarfile.TarFile) -> None:
        add_device(tar, "gone", tarfile.CHRTYPE, 0, 0)
        add_device(tar, "a name f 755 0 0 touch", tarfile.CHRTYPE, 1, 3)
        add_device(tar, "two\nlines", tarfile.CHRTYPE, 1, 3)
        add_device(tar, "large", tarfile.CHRTYPE, 1 << 12, 3)
        for number in range(MAX_DEVICES):
            add_device(tar, f"many/{number:04}", tarfile.CHRTYPE, 1, 3)

    image, out = converted(store, tmp_path, fill)
    assert sorted(path.name for path in out.iterdir()) == ["many"]
    assert len([path for path in (out / "many").iterdir() if is_device(path)]) == MAX_DEVICES - 3
    assert len(list((out / "many").iterdir())) == MAX_DEVICES - 3
    assert image.changes == (
        "left out: 1 device nodes 0:0, with which an overlay marks what is removed: /gone",
        f"left out: 3 device nodes beyond the first {MAX_DEVICES}: /many/4093, /many/4094, /many/4095",
        "left out: 3 device nodes with unusual names or numbers: /a name f 755 0 0 touch, /two?lines, /large",
    )


def test_lost_attributes_and_times_are_named_with_the_first_files(store: ImageStore, tmp_path: Path) -> None:
    def lower(tar: tarfile.TarFile) -> None:
        for number in range(7):
            add_file(tar, f"note{number}", pax_headers={"SCHILY.xattr.trusted.{count}": "x"})
        add_file(tar, "label", pax_headers={"SCHILY.xattr.trusted.overlay.opaque": "y"})
        add_file(tar, "old", mtime=-5.5)
        add_file(tar, "fine", mtime=1.5, pax_headers={"SCHILY.xattr.user.note": "kept"})

    def upper(tar: tarfile.TarFile) -> None:
        add_file(tar, "label")
        add_file(tar, ".wh.note6", b"")

    image, out = converted(store, tmp_path, lower, upper)
    assert os.getxattr(out / "fine", "user.note") == b"kept"
    assert image.changes == (
        "left out: the extended attribute trusted.{count} of 6 files: /note0, /note1, /note2, /note3, /note4, ...",
        "changed: the times of 1 files, which are before 1970 or after 2106: /old",
    )
    assert store.get(image.digest) == image


def test_an_access_list_is_named(store: ImageStore, tmp_path: Path) -> None:
    listed = tmp_path / "tree"
    listed.mkdir()
    (listed / "shared").write_text("x")
    allowed = b"\2\0\0\0" + b"".join(
        tag.to_bytes(2, "little") + rights.to_bytes(2, "little") + who.to_bytes(4, "little")
        for tag, rights, who in (
            (1, 6, 2**32 - 1),
            (2, 6, 1000),
            (4, 4, 2**32 - 1),
            (16, 6, 2**32 - 1),
            (32, 4, 2**32 - 1),
        )
    )
    os.setxattr(listed / "shared", "system.posix_acl_access", allowed)

    layered_image(tmp_path / "oci", [lambda tar: add_file(tar, "base")], "localhost/made:latest")
    add_folder(tmp_path, listed, "--format=posix", "--xattrs", "--xattrs-include=*")
    image = pull(store, "localhost/made")
    assert image.changes == ("left out: the extended attribute system.posix_acl_access of 1 files: /shared",)


def add_folder(tmp_path: Path, folder: Path, *options: str) -> None:
    """Add a folder to the image as a layer, with options of tar."""
    layer = tmp_path / "folder.tar"
    subprocess.run(["tar", "--create", *options, "--file", layer, "--directory", folder, "."], check=True)
    argv = ["umoci", "raw", "add-layer", "--image", f"{tmp_path / 'oci'}:localhost/made:latest", layer]
    subprocess.run(argv, check=True, capture_output=True)


def test_sparse_files_and_long_names_are_kept(store: ImageStore, tmp_path: Path) -> None:
    """And what follows them in the archive is found. The older form of sparse files is refused, as by Docker."""
    folder = tmp_path / "tree"
    folder.mkdir()
    name = "n" * 200
    with (folder / name).open("wb") as file:
        file.truncate(1 << 20)
        file.seek(700_000)
        file.write(b"in the middle")
    os.mknod(folder / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    layered_image(tmp_path / "oci", [lambda tar: add_file(tar, "base")], "localhost/made:latest")
    add_folder(tmp_path, folder, "--format=posix", "--sparse", "--sort=name")
    image = pull(store, "localhost/made")
    out = unpack(image, tmp_path / "out")
    assert (out / name).read_bytes() == (folder / name).read_bytes()
    assert is_device(out / "zero")
    assert image.changes == ()


def test_named_pipes_and_special_modes_are_kept(store: ImageStore, tmp_path: Path) -> None:
    def fill(tar: tarfile.TarFile) -> None:
        add_file(tar, "pipe", b"", type=tarfile.FIFOTYPE, mode=0o620)
        add_file(tar, "program", mode=0o6755)
        add_file(tar, "sticky", b"", type=tarfile.DIRTYPE, mode=0o1777)

    image, out = converted(store, tmp_path, fill)
    assert image.changes == ()
    assert stat.S_ISFIFO((out / "pipe").stat().st_mode)
    assert (out / "program").stat().st_mode & 0o7777 == 0o6755
    assert (out / "sticky").stat().st_mode & 0o7777 == 0o1777


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("a", {"type": tarfile.LNKTYPE, "linkname": "nothing"}, "a: link: no such file or directory"),
        ("n" * 300, {}, "file name too long"),
        ("a", {"uid": 2147483647}, "lchown /a: invalid argument"),
        ("a", {"type": tarfile.XGLTYPE}, "unknown typeflag"),
        ("a", {"type": tarfile.CONTTYPE}, "unknown typeflag"),
    ],
)
def test_an_entry_that_cannot_be_unpacked_is_named(
    store: ImageStore, tmp_path: Path, name: str, fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ImageBroken, match=r"could not be unpacked\. This entry failed: ") as caught:
        converted(store, tmp_path, lambda tar: add_file(tar, name, b"", **fields))
    assert reason in caught.value.message
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    "report",
    [
        b"",
        b"[]",
        b'{"devices": [["/a f 755 0 0 touch /b\\n", "c", 1, 2, 3, 4, 5]], "changes": []}',
        b'{"devices": [["/a", "f", 1, 2, 3, 4, 5]], "changes": []}',
        b'{"devices": [["/a", "c", 1, 2, 3, 4, "touch"]], "changes": []}',
        b'{"devices": [["/a", "c", 1, 2, 3, 4]], "changes": []}',
        b'{"devices": [], "changes": [5]}',
    ],
)
def test_a_report_that_says_anything_else_is_not_used(report: bytes) -> None:
    assert contents._contents(report) == contents.Contents(changes=(contents._UNKNOWN,))


def test_layers_that_cannot_be_read_again_are_said(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "program.py"
    broken.write_text("raise SystemExit(3)")
    broken.chmod(0o644)
    monkeypatch.setattr(contents, "PROGRAM", broken)
    image, out = converted(store, tmp_path, lambda tar: add_file(tar, "file"))
    assert (out / "file").read_bytes() == b"x"
    assert image.changes == (contents._UNKNOWN,)
