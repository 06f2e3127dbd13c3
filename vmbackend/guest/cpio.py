"""A reproducible initramfs: an archive of the kernel's `newc` format, sorted, owned by root, without times.

Not created by cpio(1): device nodes need no root, and nothing depends on the build host.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Old, so that runsvdir does not wait for changes of its service directory; not 0, which some tools treat as unset.
FIXED_MTIME = 1


@dataclass(frozen=True, slots=True)
class Node:
    """One member. `mode` includes the file type; `device` is (major, minor) of a character device."""

    path: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def directory(path: str, mode: int = 0o755) -> Node:
    return Node(path, stat.S_IFDIR | mode)


def regular(path: str, data: bytes, mode: int = 0o644) -> Node:
    return Node(path, stat.S_IFREG | mode, data)


def program(path: str, source: Path) -> Node:
    return regular(path, source.read_bytes(), 0o755)


def symlink(path: str, target: str) -> Node:
    return Node(path, stat.S_IFLNK | 0o777, target.encode())


def archive(nodes: Iterable[Node]) -> bytes:
    """Return the archive of `nodes` and their parent directories, parents first."""
    members = {node.path: node for node in nodes}
    for path in list(members):
        for parent in Path(path).parents:
            if parent != Path():
                members.setdefault(str(parent), directory(str(parent)))
    body = b"".join(_member(index, members[path]) for index, path in enumerate(sorted(members), start=1))
    return body + _member(0, Node("TRAILER!!!", 0))


def _member(inode: int, node: Node) -> bytes:
    name = node.path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(node.mode) else 1
    fields = (inode, node.mode, 0, 0, links, FIXED_MTIME, len(node.data), 0, 0, *node.device, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    return _padded(header) + _padded(node.data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
