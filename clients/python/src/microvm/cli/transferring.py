"""Folders by the transfers of a workspace's runtime, where that is on: one compressed stream of bytes."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from threading import Event
from typing import Any, cast

from microvm.cli.failures import CommandError
from microvm.cli.guest_tar import MOST_REST, MOST_SAID, take_archive
from microvm.cli.packing import FolderPacker
from microvm.errors import ApiError, ConnectionFailed
from microvm.sync.client import Microvm
from microvm.sync.runtime_files import RuntimeFiles

_LEVEL = 1  # of compression: a fast network is not to wait for it
_GZIP = 31  # zlib's window with a header of gzip
_STOP_SECONDS = 10.0


def transfer_files(client: Microvm, workspace: str) -> RuntimeFiles | None:
    """Return the files of a workspace's runtime; None where it is off, or not for this credential or service.

    Raises ApiError, ConnectionFailed.
    """
    try:
        return client.runtime(workspace).files
    except ApiError as error:
        if error.code == "runtime_disabled" or error.status in (403, 404):
            return None
        raise


def send_folder(client: Microvm, files: RuntimeFiles, workspace: str, target: str, packer: FolderPacker) -> None:
    """Do what `take_archive` does with the archive of `packer`, which sets apart what a transfer leaves out.

    A program in the workspace makes the folder that is filled, takes what was set apart, and puts all in its place. It
    ends with this process, and the folder with it.
    """
    is_over, is_idle = Event(), Event()
    is_idle.set()

    def fill(stage: str) -> None:
        is_idle.clear()
        try:
            source = cast(Any, GzipSource(packer.parts(), is_over))
            if skipped := files.upload(source, dest=stage)["skipped"]:
                raise CommandError(f"The workspace left out {skipped} entries.", "Nothing was changed there.")
        finally:
            is_idle.set()

    try:
        take_archive(client, workspace, target, packer.apart_parts, fill)
    except BaseException:
        is_over.set()
        is_idle.wait(_STOP_SECONDS)
        raise


class GzipSource(io.RawIOBase):
    """Parts as gzip, to be read once. With `is_over` it raises ConnectionFailed."""

    def __init__(self, parts: Iterator[bytes], is_over: Event) -> None:
        super().__init__()
        self._packer = zlib.compressobj(_LEVEL, wbits=_GZIP)
        self._parts: Iterator[bytes] | None = parts
        self._is_over = is_over
        self._rest = bytearray()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while len(self._rest) < len(buffer) and self._parts is not None:
            self._pack_next()
        size = min(len(self._rest), len(buffer))
        buffer[:size] = self._rest[:size]
        del self._rest[:size]
        return size

    def _pack_next(self) -> None:
        if self._is_over.is_set() or self._parts is None:
            raise ConnectionFailed("The copy was given up.")
        if (part := next(self._parts, None)) is None:
            self._parts = None
            self._rest += self._packer.flush()
        else:
            self._rest += self._packer.compress(part)


def has_plain_name(files: RuntimeFiles, source: str) -> bool:
    """Return whether the names in a transfer of this folder are its own: no root, no link, no `..`."""
    return source.strip("/") != "" and ".." not in source.split("/") and files.stat(path=source)["type"] == "directory"


class ArchiveOfTransfer:
    """A folder as a transfer sends it. `read` as that of a file."""

    def __init__(self, files: RuntimeFiles, source: str) -> None:
        self._parts = files.download_parts([source])
        self._unpacker = zlib.decompressobj(_GZIP)
        self._packed = b""

    def read(self, size: int) -> bytes:
        """Raises ApiError, ConnectionFailed, CommandError."""
        while not self._unpacker.eof:
            try:
                found = self._unpacker.decompress(self._packed, size)
            except zlib.error as error:
                hint = "What was written before is whole; copy single files with `ws cp`."
                raise CommandError(f"The workspace sent an archive that cannot be read: {error}", hint) from error
            self._packed = self._unpacker.unconsumed_tail
            if found:
                return found
            if not self._packed and not self._unpacker.eof:
                self._packed = next(self._parts, b"")
                if not self._packed:
                    raise ConnectionFailed("The archive ended too early.")
        return b""

    def finish(self) -> list[tuple[str, str]]:
        """Return nothing, as all is there or this raises as `read` does, and CommandError for what does not end."""
        rest = 0
        while part := self.read(MOST_SAID):
            rest += len(part)
            if rest > MOST_REST:
                raise CommandError("The folder's archive does not end.", "What was written before is whole.")
        return []

    def require_success(self) -> None:
        """Nothing but the archive says why there is none."""

    def close(self) -> None:
        self._parts.close()
