"""Disk use of the files of pages, which the limit of an account counts.

It is counted in whole blocks: twenty thousand files of one byte take 80 MB and not 20 kB. This limits inodes as well,
because a file or folder takes at least one block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pages.releases.manifest import StoredFile
from pages.releases.received import ReceivedFile

BLOCK = 4096
# A release has its own folder, `public`, the manifest and the rules.
_OF_A_RELEASE = 4 * BLOCK
# A name is in its folder and in the manifest, there with digest and sizes.
_OF_A_NAME = 160


def block_bytes(size: int) -> int:
    """Return the bytes of the disk for a file or folder."""
    return max(1, -(-size // BLOCK)) * BLOCK


def content_bytes(file: StoredFile) -> int:
    """Return the bytes of a content with its compressed copies."""
    return block_bytes(file.size) + sum(map(block_bytes, (file.copies or {}).values()))


def names_bytes(paths: Collection[str]) -> int:
    """Return the bytes of a release besides its contents: folders, names, manifest."""
    names = sum(2 * len(path.encode()) + _OF_A_NAME for path in paths)
    return _OF_A_RELEASE + len(folders_of(paths)) * BLOCK + names


def added_bytes(files: Mapping[str, ReceivedFile], known: Mapping[str, str]) -> int:
    """Return the bytes that a release will add, before it has copies.

    Contents that no kept release has (by digest) count once each.
    """
    sizes = {file.digest: file.size for file in files.values()}
    return names_bytes(files) + sum(block_bytes(size) for digest, size in sizes.items() if digest not in known)


def folders_of(paths: Iterable[str]) -> set[str]:
    """Return all folders that files are in, with the root, which is empty."""
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return found
