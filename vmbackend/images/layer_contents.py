"""Contents of an image's layers that its base disk has only by other means, or not at all.

This is a program of its own, which runs confined after the layers were unpacked (`contents.py`): its input is hostile.

    python3 -P layer_contents.py LAYOUT ROOT

LAYOUT: an OCI layout with one image; ROOT: its tree. Prints `{"devices": [[path, kind, mode, uid, gid, major, minor]],
"changes": [sentence]}`. Devices are those that the base disk shall get: no program without rights over this host can
make them, so the tree has empty files in their places, which are removed here. Uses the standard library only.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import posixpath
import re
import stat
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A removal of a folder is compared with every finding: with more of them a hostile image would take long.
MAX_DEVICES = 4096
MAX_KINDS = 8
MAX_PATHS = 1000  # of a kind
_SHOWN = 5
_GZIP = b"\x1f\x8b"
_XATTR = "SCHILY.xattr."
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
# Characters that mksquashfs takes without quoting, in names of devices.
_PLAIN = re.compile(r"[A-Za-z0-9_.,:+@=%~/-]+")
_LAST_TIME = 2**32 - 1  # of squashfs, in seconds; the first one is 0
# Sentences: what is before and after the number of files.
Sentence = tuple[str, str]
_STRANGE_DEVICE = ("left out: ", " device nodes with unusual names or numbers")
_WHITEOUT_DEVICE = ("left out: ", " device nodes 0:0, with which an overlay marks what is removed")
_TOO_MANY = ("left out: ", f" device nodes beyond the first {MAX_DEVICES}")
_OTHERS = ("left out: further extended attributes of ", " files")
_TIMES = ("changed: the times of ", " files, which are before 1970 or after 2106")
_UNREAD = "what the base disk lacks of layer {} is not known: it could not be read a second time"

Device = tuple[str, int, int, int, int, int]  # c or b, mode, uid, gid, major, minor


@dataclass
class Found:
    """The findings: devices by their path in the image, and by sentence what is lost."""

    devices: dict[str, Device] = field(default_factory=dict)
    lost: dict[Sentence, dict[str, None]] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)  # those above a finding, and some that were

    def lose(self, sentence: Sentence, path: str) -> None:
        paths = self.lost.setdefault(sentence, {})
        if len(paths) < MAX_PATHS:
            paths[path] = None
            self._remember_folders(path)

    def add_device(self, path: str, device: Device) -> None:
        if len(self.devices) < MAX_DEVICES:
            self.devices[path] = device
            self._remember_folders(path)
        else:
            self.lose(_TOO_MANY, path)

    def _remember_folders(self, path: str) -> None:
        while (path := posixpath.dirname(path)) not in self.folders:
            self.folders.add(path)

    def forget(self, path: str) -> None:
        self.devices.pop(path, None)
        for paths in self.lost.values():
            paths.pop(path, None)

    def forget_below(self, folder: str) -> None:
        if folder not in self.folders:
            return
        self.folders.discard(folder)
        below = folder.rstrip("/") + "/"
        kinds: list[dict[str, Any]] = [self.devices, *self.lost.values()]
        for paths in kinds:
            for path in [path for path in paths if path.startswith(below)]:
                del paths[path]


class LayerReader:
    """A reader of layers in their order. An entry that a later layer replaces or removes is not a finding."""

    def __init__(self) -> None:
        self.found = Found()

    def read_layer(self, path: Path) -> None:
        own = Found()
        with _unpacked(path) as stream:
            for member in _members(stream):
                self._read_member(member, own)
        for name, device in own.devices.items():
            self.found.add_device(name, device)
        for sentence, paths in own.lost.items():
            for name in paths:
                self.found.lose(sentence, name)

    def _read_member(self, member: tarfile.TarInfo, own: Found) -> None:
        path = _normal(member.name)
        folder, name = posixpath.split(path)
        if name.startswith(_WHITEOUT):
            self._remove(folder, name)
            return
        own.forget(path)
        self.found.forget(path)
        if not member.isdir():
            self.found.forget_below(path)
        if member.islnk():
            self._link(path, _normal(member.linkname), own)
        elif member.ischr() or member.isblk():
            _add_device(path, member, own)
        if not member.islnk():
            _examine_attributes(path, member, own)

    def _remove(self, folder: str, name: str) -> None:
        if name != _OPAQUE:
            folder = posixpath.join(folder, name[len(_WHITEOUT) :])
            self.found.forget(folder)
        self.found.forget_below(folder)

    def _link(self, path: str, target: str, own: Found) -> None:
        device = own.devices.get(target) or self.found.devices.get(target)
        if device:
            own.add_device(path, device)


def _unpacked(path: Path) -> io.BufferedReader | gzip.GzipFile:
    """Open a layer, gzip or not compressed. GzipFile unpacks a few KiB at a step, and all members of the file."""
    file = path.open("rb")
    if file.peek(len(_GZIP))[: len(_GZIP)] != _GZIP:
        return file
    file.close()
    return gzip.open(path)


def _members(stream: io.BufferedReader | gzip.GzipFile) -> Iterator[tarfile.TarInfo]:
    """Yield the entries of a layer; none if there is no byte of an archive, as some builders write an empty layer.

    Not by one of tarfile's own streams: they unpack a whole buffer of any size at once, and copy it at each read.
    """
    if not stream.peek(1):
        return
    with tarfile.open(fileobj=stream, mode="r:") as tar:
        offset = 0
        while (member := tar.next()) is not None:
            if tar.offset <= offset:  # to go back is to unpack from the beginning
                raise tarfile.ReadError("an entry ends before its beginning")
            offset = tar.offset
            tar.members.clear()  # type: ignore[attr-defined]  # the module keeps all of them otherwise
            yield member


def _normal(name: str) -> str:
    return posixpath.normpath("/" + name.lstrip("/"))


def _add_device(path: str, member: tarfile.TarInfo, own: Found) -> None:
    kind = "c" if member.ischr() else "b"
    major, minor = member.devmajor, member.devminor
    if kind == "c" and (major, minor) == (0, 0):
        own.lose(_WHITEOUT_DEVICE, path)
        return
    own.add_device(path, (kind, member.mode & 0o7777, member.uid, member.gid, major, minor))


def _examine_attributes(path: str, member: tarfile.TarInfo, own: Found) -> None:
    if not 0 <= member.mtime <= _LAST_TIME:
        own.lose(_TIMES, path)
    for key in member.pax_headers:
        name = key.removeprefix(_XATTR)
        if name in (key, "security.capability") or name.startswith("user."):
            continue
        sentence = (f"left out: the extended attribute {_shown(name)} of ", " files")
        own.lose(sentence if sentence in own.lost or len(own.lost) < MAX_KINDS else _OTHERS, path)


def layers(layout: Path) -> Iterator[Path]:
    """Yield the layers of the layout's one image, the lowest first."""
    blobs = layout / "blobs"
    (entry,) = json.loads((layout / "index.json").read_bytes())["manifests"]
    for layer in json.loads(_blob(blobs, entry).read_bytes())["layers"]:
        yield _blob(blobs, layer)


def _blob(blobs: Path, descriptor: dict[str, str]) -> Path:
    algorithm, _, value = descriptor["digest"].partition(":")
    return blobs / algorithm / value


def clear_places(found: Found) -> list[tuple[str, Device]]:
    """Remove the empty files in the places of devices, in this root; return the devices with their real paths."""
    made = {}
    for path, device in found.devices.items():
        real = posixpath.join(os.path.realpath(posixpath.dirname(path)), posixpath.basename(path))
        if not _cleared(real):
            continue
        _, _, uid, gid, major, minor = device
        numbers_fit = major < 1 << 12 and minor < 1 << 20 and 0 <= uid < 1 << 32 and 0 <= gid < 1 << 32
        if numbers_fit and _PLAIN.fullmatch(real):
            made[real] = device
        else:
            found.lose(_STRANGE_DEVICE, real)
    for path in (*found.lost.get(_WHITEOUT_DEVICE, {}), *found.lost.get(_TOO_MANY, {})):
        _cleared(path)
    return list(made.items())


def _cleared(path: str) -> bool:
    """Return False if something else is: a later layer has reached the place by another name."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size:
            return False
        Path(path).unlink()
    except OSError:
        return False
    return True


def sentences(found: Found) -> list[str]:
    """Return what is lost, with the first of the files."""
    written = []
    for (before, after), paths in found.lost.items():
        if not paths:
            continue
        names = ", ".join(_shown(path) for path in list(paths)[:_SHOWN])
        count = str(len(paths)) if len(paths) < MAX_PATHS else f"{MAX_PATHS} or more"
        more = ", ..." if len(paths) > _SHOWN else ""
        written.append(f"{before}{count}{after}: {names}{more}")
    return written


def _shown(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name[:100])


def main(layout: str, root: str) -> None:
    reader, unread = LayerReader(), []
    for number, layer in enumerate(layers(Path(layout)), 1):
        try:
            reader.read_layer(layer)
        except Exception as error:
            # Anything: what tarfile makes of an archive that anybody wrote. The other layers can be examined.
            sys.stderr.write(f"layer {number}: {error!r:.200}\n")
            unread.append(number)
    os.chroot(root)
    os.chdir("/")
    devices = clear_places(reader.found)
    changes = [*map(_UNREAD.format, unread[:_SHOWN]), *sentences(reader.found)]
    report = {"devices": [[path, *device] for path, device in devices], "changes": changes}
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
