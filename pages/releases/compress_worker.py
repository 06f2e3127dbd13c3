"""Process that compresses: reads paths (JSON, one a line) from its input, reports path and sizes of copies.

python -m pages.releases.compress_worker <folder> <bytes of memory>
"""

from __future__ import annotations

import json
import os
import resource
import sys
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import brotli
import zstandard

from common.content_times import content_time_ns
from pages.releases.manifest import ENCODINGS

_PIECE = 1 << 18
# Least saving of a copy, as a share of the file.
_SAVED = 0.1


def copies_of(path: Path) -> dict[str, int]:
    """Make the copies of a file that are worth it; return their sizes by encoding. An existing copy stays. Raise
    OSError.
    """
    size = path.stat().st_size
    made = {}
    for encoding in ENCODINGS:
        target = path.with_name(f"{path.name}.{encoding}")
        if target.exists():
            continue
        data = _compressed(path, encoding, size)
        if data is not None:
            _write_copy(target, data)
            made[encoding] = len(data)
    return made


def _compressed(path: Path, encoding: str, size: int) -> bytes | None:
    """Return the compressed file; None if it saves too little."""
    most = int(size * (1 - _SAVED))
    piece, finish = _COMPRESSORS[encoding](size)
    made = bytearray()
    with path.open("rb") as file:
        while data := file.read(_PIECE):
            made += piece(data)
            if len(made) > most:
                return None
    made += finish()
    return bytes(made) if len(made) <= most else None


Compressor = tuple[Callable[[bytes], bytes], Callable[[], bytes]]


def _brotli(size: int) -> Compressor:
    """Return a compressor. The best quality, 11, takes 2.5 times as long as 10 for 3 % fewer bytes.

    Large files are compressed less.
    """
    made = brotli.Compressor(quality=10 if size < 1 << 19 else 9 if size < 1 << 23 else 5)
    return made.process, made.finish


def _zstandard(size: int) -> Compressor:
    """Return a compressor. Browsers refuse windows above 8 MiB; levels up to 19 stay below that."""
    made = zstandard.ZstdCompressor(level=19 if size < 1 << 20 else 9).compressobj(size=size)
    return made.compress, made.flush


def _gzip(size: int) -> Compressor:
    """Return a compressor that writes no name and no time: equal contents have equal copies."""
    made = zlib.compressobj(9, zlib.DEFLATED, 31)
    return made.compress, made.flush


_COMPRESSORS: dict[str, Callable[[int], Compressor]] = {"br": _brotli, "zst": _zstandard, "gz": _gzip}


def _write_copy(target: Path, data: bytes) -> None:
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fchmod(fd, 0o644)
        time = content_time_ns(sha256(data).hexdigest())
        os.utime(fd, ns=(time, time))


def _reports(folder: Path, lines: Iterator[str]) -> Iterator[list[Any]]:
    for line in lines:
        path = json.loads(line)
        yield [path, copies_of(folder / path)]


def main() -> None:
    """Report each file as soon as its copies are whole."""
    memory = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)
    for report in _reports(Path(sys.argv[1]), iter(sys.stdin)):
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
