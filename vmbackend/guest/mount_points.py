"""Folders of the guest that are not removed: mount points, those with mount points in them, and the kit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import basename, dirname, join

from vmbackend.errors import GuestPathInvalid

from .command_results import KitCommand, require_end
from .sftp import FileChannel

# Bytes of the list of mounts: a hostile guest may have any number of them.
MAX_MOUNTS = 1 << 20
_OCTAL = re.compile(rb"\\([0-7]{3})")


async def require_removable(files: FileChannel, run: KitCommand, path: str, kit: str) -> None:
    """Raise GuestPathInvalid for a folder whose removal would empty a mounted file system, or the kit.

    Looked at before anything is removed: `rm` notices a mount point once all in it is gone.
    """
    client = await files.client()
    parent = str(await files.request(client.realpath(dirname(path)), path))
    place = join(parent, basename(path))
    if place == kit or place.startswith(f"{kit}/"):
        raise GuestPathInvalid(f"{path!r} belongs to the platform.")
    listed = require_end(await run("busybox", ["cat", "/proc/self/mountinfo"], "/", b"", MAX_MOUNTS))
    for mount in _mounts(listed.stdout):
        if mount == place or mount.startswith(f"{place}/"):
            raise GuestPathInvalid(f"{path!r} is busy: a file system is mounted at {mount!r}.")


def _mounts(listed: bytes) -> Iterator[str]:
    for line in listed.splitlines():
        fields = line.split(b" ", 5)
        if len(fields) > 5:
            place = _OCTAL.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), fields[4])
            yield place.decode("utf-8", "surrogateescape")
