"""Small files of the state folder."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from dotenv import dotenv_values

# The umask of every command and process: what they create is their user's alone. Files that others must reach (a
# machine's process, which has a user of its own; the content of images) gets its mode explicitly.
UMASK = 0o077


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read. Written beside its place and renamed: readers never see half of it."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_private_once(path: Path, text: str) -> None:
    """Do what `write_private` does, unless the file exists: of two processes that write it at once, the first one
    wins.
    """
    if path.exists():
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    write_private(temporary, text)
    try:
        os.link(temporary, path)  # unlike a rename this never replaces a file
    except FileExistsError:
        pass
    finally:
        temporary.unlink()


def read_env_file(path: Path) -> dict[str, str]:
    """Return the `KEY=VALUE` lines of a file; empty if there is none."""
    values = dotenv_values(path, interpolate=False) if path.exists() else {}
    return {key: value for key, value in values.items() if value is not None}
