"""Compressed copies of a release: those of the archive, those of kept releases, and those that must be made."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import brotli
import zstandard

from pages.releases.compress import CompressLimits, is_compressed, make_copies
from pages.releases.manifest import ENCODINGS, StoredFile
from pages.releases.received import Received

_PIECE = 1 << 16


# Copies of a content by digest: the file's path, and the copies' sizes.
KnownCopies = Mapping[str, tuple[str, Mapping[str, int]]]


def remove_foreign_copies(public: Path, received: Received) -> None:
    """Leave out files that the edge would serve as compressed copies of others, but that are not their copies.

    If `data.gz` is beside `data`, a client that asks for `data` and accepts gzip gets it. So it stays only if it
    unpacks to that.
    """
    for path in [path for path in received.files if path.endswith(tuple(f".{name}" for name in ENCODINGS))]:
        original, _, encoding = path.rpartition(".")
        if original in received.files and not _is_copy(public, original, encoding):
            (public / path).unlink()
            del received.files[path]
            received.skip(path, f"not the compressed form of {original}")


def release_copies(
    public: Path, received: Received, known: KnownCopies, limits: CompressLimits
) -> tuple[dict[str, StoredFile], list[str]]:
    """Make the copies of all files, of each content once. Copies that a kept release has are linked.

    Return the files, and the paths of the copies that were written. Raise OSError.
    """
    copies: dict[str, Mapping[str, int]] = {}
    jobs: list[tuple[str, int]] = []
    first: dict[str, str] = {}
    for path, file in received.files.items():
        if not is_compressed(path, file.size):
            copies[path] = {}
        elif (linked := _link_copies(public, path, known.get(file.digest))) is not None:
            copies[path] = linked
        elif first.setdefault(file.digest, path) == path:
            jobs.append((path, file.size))
    made = make_copies(public, jobs, limits) if jobs else {}
    copies |= made
    for path, file in received.files.items():
        source = first.get(file.digest)
        if path not in copies and source in made:
            copies |= {path: _link_copies(public, path, (f"{public}/{source}", made[source])) or {}}
    written = [f"{path}.{encoding}" for path, encodings in made.items() for encoding in encodings]
    files = {path: StoredFile(file.digest, file.size, copies.get(path)) for path, file in received.files.items()}
    return files, written


def _link_copies(public: Path, path: str, known: tuple[str, Mapping[str, int]] | None) -> Mapping[str, int] | None:
    """Link the copies of a kept release; return None if they are gone: then they are made."""
    if known is None:
        return None
    source, copies = known
    made: dict[str, int] = {}
    target = f"{public}/{path}"
    for encoding, size in copies.items():
        try:
            os.link(f"{source}.{encoding}", f"{target}.{encoding}", follow_symlinks=False)
            made[encoding] = size
        except FileExistsError:
            continue  # the export's own
        except OSError:
            for other in made:
                os.unlink(f"{target}.{other}")  # noqa: PTH108 - as above
            return None
    return made


def _is_copy(public: Path, original: str, encoding: str) -> bool:
    try:
        with (public / original).open("rb") as expected:
            for piece in _unpacked(public / f"{original}.{encoding}", encoding):
                if expected.read(len(piece)) != piece:
                    return False
            return not expected.read(1)
    except (zlib.error, brotli.error, zstandard.ZstdError, EOFError):
        return False


def _unpacked(path: Path, encoding: str) -> Iterator[bytes]:
    """Yield the unpacked file in pieces, whatever its size: the caller stops at the first difference."""
    with path.open("rb") as file:
        if encoding == "zst":
            yield from _zstandard_pieces(file)
        elif encoding == "gz":
            yield from _gzip_pieces(file.read)
        else:
            yield from _brotli_pieces(file.read)


def _zstandard_pieces(file: BinaryIO) -> Iterator[bytes]:
    with zstandard.ZstdDecompressor(max_window_size=1 << 23).stream_reader(file) as reader:
        while data := reader.read(_PIECE):
            yield data


def _gzip_pieces(read: Callable[[int], bytes]) -> Iterator[bytes]:
    unpack = zlib.decompressobj(31)
    while not unpack.eof and (data := unpack.unconsumed_tail or read(_PIECE)):
        yield unpack.decompress(data, _PIECE)
    if not unpack.eof or unpack.unused_data or read(1):
        raise EOFError


def _brotli_pieces(read: Callable[[int], bytes]) -> Iterator[bytes]:
    unpack = brotli.Decompressor()
    while data := read(_PIECE):
        yield unpack.process(data, output_buffer_limit=_PIECE)
        while not unpack.can_accept_more_data():
            yield unpack.process(b"", output_buffer_limit=_PIECE)
    if not unpack.is_finished():
        raise EOFError
