"""Keys of the store: `files/<file_id>/<sha256>`, and `files/<file_id>/v/<index>-<sha256>` for variants."""

from __future__ import annotations

import re

_FILE_ID = re.compile(r"[a-z]{1,8}_[a-z2-7]{8,24}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_KEY = re.compile(r"files/([a-z]{1,8}_[a-z2-7]{8,24})/(?:v/[0-9]{1,4}-)?([0-9a-f]{64})")


def original_key(file_id: str, sha256: str) -> str:
    """Return the key of the bytes as they were uploaded. Raise ValueError."""
    return f"{file_folder(file_id)}/{_checked_digest(sha256)}"


def variant_key(file_id: str, index: int, sha256: str) -> str:
    """Return the key of a variant; `index` is its place among the file's variants. Raise ValueError."""
    if not 0 <= index <= 9999:
        raise ValueError(f"{index} is not a place of a variant.")
    return f"{file_folder(file_id)}/v/{index}-{_checked_digest(sha256)}"


def file_folder(file_id: str) -> str:
    """Return the beginning of all keys of a file, without the slash. Raise ValueError."""
    return f"files/{checked_id(file_id)}"


def checked_id(file_id: str) -> str:
    """Return the id, which becomes a part of paths. Raise ValueError."""
    if not _FILE_ID.fullmatch(file_id):
        raise ValueError(f"{file_id!r} is not an id of a file.")
    return file_id


def checked_key(key: str) -> tuple[str, str]:
    """Return id and digest of a key. Raise ValueError if it is not a key."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise ValueError(f"{key!r} is not a key of the store.")
    return found[1], found[2]


def _checked_digest(sha256: str) -> str:
    if not _DIGEST.fullmatch(sha256):
        raise ValueError(f"{sha256!r} is not a SHA-256.")
    return sha256
