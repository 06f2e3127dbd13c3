"""`manifest.json` of a backup: written last, so that a folder with one is a complete backup."""

from __future__ import annotations

import json
import os
from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from supervise.files import write_private
from supervise.instance import InstanceError

FORMAT = 2
NAME = "manifest.json"
Machine = Annotated[str, Field(pattern=r"^ws_[a-z0-9]+$")]
AbsolutePath = Annotated[str, Field(pattern=r"^/[^\x00-\x1f]+$")]


class Manifest(BaseModel):
    """The identity of an instance, and what the backup has of it. Its values become paths, patterns and settings.

    `omitted`: machines that ran, and so are not in it. `earlier`: machines that were started or stopped before the
    database was copied; their disks are older than their rows. `migrations`: "app.name" of each migration that the
    database has. `digest`: of the list of hashes.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    instance: str = Field(pattern=r"^[0-9a-f]{6}$")
    state: AbsolutePath
    short: AbsolutePath
    subnet: str
    host_name: str = Field(pattern=r"^[a-z0-9-]{1,40}$")
    created_at: str
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    files: int
    bytes: int
    migrations: list[str]
    machines: list[Machine]
    omitted: list[Machine]
    earlier: list[Machine]
    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)] = FORMAT

    @field_validator("subnet")
    @classmethod
    def _is_subnet(cls, value: str) -> str:
        return str(IPv4Network(value))

    @field_validator("state", "short")
    @classmethod
    def _is_whole(cls, value: str) -> str:
        if os.path.normpath(value) != value:
            raise ValueError("is not an absolute path without `..`")
        return value

    def write(self, folder: Path) -> None:
        """Raise OSError."""
        write_private(folder / NAME, json.dumps(self.model_dump(), indent=2) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """Raise InstanceError: the folder is no complete backup, a damaged one, or one of another version."""
    try:
        values = json.loads((folder / NAME).read_text())
        if values["format"] != FORMAT:
            raise InstanceError(f"{folder} has the format {values['format']!r}; this version reads {FORMAT}.")
        return Manifest.model_validate(values)
    except FileNotFoundError as error:
        raise InstanceError(f"{folder} is not a complete backup: it has no {NAME}.") from error
    except ValidationError as error:
        wrong = sorted({str(each["loc"][0]) for each in error.errors() if each["loc"]})
        raise InstanceError(f"{folder / NAME} is damaged: {', '.join(wrong)} cannot be right.") from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InstanceError(f"{folder / NAME} cannot be read: {error!r}.") from error
