"""How the program that examines an image's layers reads them: all of them, in small steps."""

from __future__ import annotations

import bz2
import gzip
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from vmbackend.images.contents import PROGRAM

pytestmark = pytest.mark.host

# More than reading takes anywhere; to copy the rest of a layer at each entry takes longer.
CPU_SECONDS = 20
DATA_BYTES = 256 << 20
END = bytes(2 * tarfile.BLOCKSIZE)


def header(name: str, size: int = 0, **fields: Any) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size = size
    for key, value in fields.items():
        setattr(entry, key, value)
    return entry.tobuf(format=tarfile.PAX_FORMAT)


def device(name: str) -> bytes:
    return header(name, type=tarfile.CHRTYPE, devmajor=1, devminor=3, mode=0o666)


def examine(tmp_path: Path, *layers: bytes | Path) -> dict[str, Any]:
    """The program's report on an image of these layers, in whose tree a device's place is empty."""
    blobs, root = tmp_path / "oci/blobs/made", tmp_path / "root"
    blobs.mkdir(parents=True)
    root.mkdir()
    (root / "null").touch()
    listed = []
    for number, layer in enumerate(layers):
        content = blobs / str(number)
        content.hardlink_to(layer) if isinstance(layer, Path) else content.write_bytes(layer)
        listed.append({"digest": f"made:{number}"})
    (blobs / "manifest").write_text(json.dumps({"layers": listed}))
    (tmp_path / "oci/index.json").write_text(json.dumps({"manifests": [{"digest": "made:manifest"}]}))
    limits = ["prlimit", f"--cpu={CPU_SECONDS}", f"--data={DATA_BYTES}"]
    argv = [*limits, sys.executable, "-P", str(PROGRAM), str(tmp_path / "oci"), str(root)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def devices(report: dict[str, Any]) -> list[str]:
    return [path for path, *_ in report["devices"]]


def test_many_small_files_take_little_work(tmp_path: Path) -> None:
    small = header("etc/file", 200) + bytes(tarfile.BLOCKSIZE)
    report = examine(tmp_path, gzip.compress(small * 60_000 + device("null") + END))
    assert devices(report) == ["/null"]


def test_a_file_that_unpacks_to_much_more_takes_little_memory(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "zeros", "wb", compresslevel=1) as layer:
        layer.write(header("zeros", 2 * DATA_BYTES))
        for _ in range(2 * DATA_BYTES >> 20):
            layer.write(bytes(1 << 20))
        layer.write(device("null") + END)
    assert devices(examine(tmp_path, tmp_path / "zeros")) == ["/null"]


def test_a_layer_of_several_gzip_members_is_read_to_its_end(tmp_path: Path) -> None:
    parts = (header("etc/"), header("etc/file", 3) + b"abc".ljust(tarfile.BLOCKSIZE, b"\0"), device("null"), END)
    assert devices(examine(tmp_path, b"".join(map(gzip.compress, parts)))) == ["/null"]


def test_a_layer_that_is_not_compressed_is_read(tmp_path: Path) -> None:
    assert devices(examine(tmp_path, header("etc/") + device("null") + END)) == ["/null"]


@pytest.mark.parametrize(
    "empty",
    [b"", gzip.compress(b"", mtime=0), END, gzip.compress(END, mtime=0)],
    ids=["no bytes", "no bytes, packed", "no entries", "no entries, packed"],
)
def test_an_empty_layer_has_no_entries(tmp_path: Path, empty: bytes) -> None:
    report = examine(tmp_path, empty, gzip.compress(device("null") + END), empty)
    assert (devices(report), report["changes"]) == (["/null"], [])


@pytest.mark.parametrize(
    "broken",
    [
        b"no archive, and not gzip either",
        gzip.compress(device("other") + END)[:60],
        bz2.compress(device("other") + END),
        header("file", 1 << 30) + b"and nothing more",
        header("file", -4096) + END,
    ],
    ids=["no archive", "cut off", "bzip2", "a file that is cut off", "a size below zero"],
)
def test_a_layer_that_cannot_be_read_is_named_and_the_others_are_examined(tmp_path: Path, broken: bytes) -> None:
    report = examine(tmp_path, device("null") + END, broken)
    assert devices(report) == ["/null"]
    assert report["changes"] == ["what the base disk lacks of layer 2 is not known: it could not be read a second time"]
