"""The owner of the folder of machines, if the folder lies outside the state folder.

Every directory in it that belongs to no workspace is an orphan and is removed, so it must hold nothing else: neither
other files, nor the machines of another instance.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from vmbackend.errors import BackendUnavailable

OWNER = ".instance"
# The file in the folder of a machine that belongs to nobody yet (`Driver.assign`).
UNASSIGNED = "unassigned"
_WORKSPACE = re.compile(r"ws_[2-7a-z]{16}")


def claim_folder(folder: Path, instance: str) -> None:
    """Note in the folder that it is this instance's. Idempotent; of two instances at once one gets it.

    Raise BackendUnavailable, with nothing changed, if it holds anything but machines, or is another instance's.
    """
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        foreign = sorted(entry.name for entry in folder.iterdir() if not _belongs(entry.name))
        owner = _owner_of(folder, instance) if not foreign else None
    except OSError as error:
        raise BackendUnavailable(f"The folder of machines {folder} cannot be used: {error.strerror}.") from error
    if foreign:
        raise BackendUnavailable(f"{folder} holds {foreign[0]!r}: machines need a folder of their own.")
    if owner != instance:
        raise BackendUnavailable(
            f"{folder} is the folder of the machines of instance {owner}; each needs its own. If that instance is "
            f"gone, remove {folder / OWNER}."
        )


def _belongs(name: str) -> bool:
    return name.startswith(".") or name == "lost+found" or bool(_WORKSPACE.fullmatch(name))


def _owner_of(folder: Path, instance: str) -> str:
    path, beside = folder / OWNER, folder / f"{OWNER}.{instance}"
    if not path.exists():
        beside.write_text(instance)
        with suppress(FileExistsError):
            os.link(beside, path)  # unlike a rename this never replaces a file
        beside.unlink()
    return path.read_text().strip()
