"""Type of a file by its bytes: libmagic on the first 64 KiB. Neither names nor claims are read."""

from __future__ import annotations

import threading
from typing import BinaryIO

import magic

from cdn.types import TYPES, UNKNOWN_TYPE, FileType, file_type

HEAD_BYTES = 64 << 10
_PACKET_BYTES, _SYNC_BYTE = 188, 0x47

# The name of libmagic -> the type of cdn/types.py.
_SAME = {
    "application/csv": "text/csv",
    "application/ogg": "audio/ogg",
    "application/x-gzip": "application/gzip",
    "application/x-rar": "application/vnd.rar",
    "application/x-zstd": "application/zstd",
    "application/x-ndjson": "text/plain",
    "application/javascript": "text/plain",
    "application/vnd.apple.mpegurl": "text/plain",
    "application/x-mpegurl": "text/plain",
    "audio/x-mpegurl": "text/plain",
    "application/xml": "text/xml",
    "application/font-sfnt": "font/ttf",
    "application/vnd.ms-opentype": "font/otf",
    "font/sfnt": "font/ttf",
    "audio/mp3": "audio/mpeg",
    "audio/x-m4a": "audio/mp4",
    "audio/x-wav": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/x-flac": "audio/flac",
    "audio/x-hx-aac-adts": "audio/aac",
    "audio/x-aac": "audio/aac",
    "audio/x-mp4a-latm": "audio/mp4",
    "image/heif": "image/heic",
    "image/heic-sequence": "image/heic",
    "image/heif-sequence": "image/heic",
    "image/avif-sequence": "image/avif",
    "image/vnd.microsoft.icon": "image/x-icon",
    "image/x-ms-bmp": "image/bmp",
    "image/svg": "image/svg+xml",
    "video/x-m4v": "video/mp4",
    "video/3gpp2": "video/3gpp",
    "video/MP2T": "video/mp2t",
    "video/mpeg4-generic": "video/mpeg",
    "video/mpv": "video/mpeg",
}
# Least work for the most common files. In hostile files no pattern is searched far.
_LIMITS = {
    magic.MAGIC_PARAM_INDIR_MAX: 15,
    magic.MAGIC_PARAM_NAME_MAX: 50,
    magic.MAGIC_PARAM_ELF_PHNUM_MAX: 16,
    magic.MAGIC_PARAM_ELF_SHNUM_MAX: 16,
    magic.MAGIC_PARAM_ELF_NOTES_MAX: 16,
    magic.MAGIC_PARAM_REGEX_MAX: 1024,
    magic.MAGIC_PARAM_BYTES_MAX: HEAD_BYTES,
}
_own = threading.local()


def type_sniff(head: bytes) -> FileType:
    """Return the type of a file that begins with these bytes; bytes after the first 64 KiB are not read."""
    head = head[:HEAD_BYTES]
    if not head:
        return file_type("text/plain")
    name = _known_name(_database().from_buffer(head))
    return file_type("video/mp2t" if name == UNKNOWN_TYPE and _is_transport_stream(head) else name)


def file_sniff(file: BinaryIO) -> FileType:
    """Return the type of an open file, which is read from its beginning. Raise OSError."""
    file.seek(0)
    return type_sniff(file.read(HEAD_BYTES))


def _is_transport_stream(head: bytes) -> bool:
    """Return whether the bytes are packets of 188 bytes; libmagic knows few of their kinds."""
    return len(head) >= 4 * _PACKET_BYTES and all(head[number * _PACKET_BYTES] == _SYNC_BYTE for number in range(4))


def _known_name(found: str) -> str:
    """Return a type's name in this module's terms.

    Programs, mails and the like are text to a browser; only markup is something else.
    """
    name = _SAME.get(found, found)
    return "text/plain" if name.startswith("text/") and name not in TYPES else name


def _database() -> magic.Magic:
    """Return the database of this thread: libmagic's state is not shared."""
    if not hasattr(_own, "database"):
        _own.database = magic.Magic(mime=True)
        for limit, value in _LIMITS.items():
            _own.database.setparam(limit, value)
    found: magic.Magic = _own.database
    return found
