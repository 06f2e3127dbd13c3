"""`manifest.json` of a backup: written last, so that a folder with one is a complete backup."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from supervise.files import write_private
from supervise.instance import InstanceError

FORMAT = 1
NAME = "manifest.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What identifies an instance, and what the backup has of it.

    `omitted`: machines that ran, and so are not in it. `earlier`: those that were started or stopped before the
    database was copied; their disks are older than their rows. `migrations`: "app.name" of each one that the database
    has. `digest`: of the list of hashes.
    """

    instance: str
    state: str
    short: str
    subnet: str
    host_name: str
    database: str  # sqlite or postgresql
    created_at: str
    digest: str
    files: int
    bytes: int
    migrations: list[str]
    machines: list[str] = field(default_factory=list)
    omitted: list[str] = field(default_factory=list)
    earlier: list[str] = field(default_factory=list)
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        """Raises OSError."""
        write_private(folder / NAME, json.dumps(asdict(self), indent=2) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """Raises InstanceError: the folder is no complete backup, or one of another version."""
    try:
        values = json.loads((folder / NAME).read_text())
        if values["format"] != FORMAT:
            raise InstanceError(f"{folder} has the format {values['format']}; this version reads {FORMAT}.")
        return Manifest(**{item.name: values[item.name] for item in fields(Manifest)})
    except FileNotFoundError as error:
        raise InstanceError(f"{folder} is no complete backup: it has no {NAME}.") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InstanceError(f"{folder / NAME} cannot be read: {error!r}.") from error
