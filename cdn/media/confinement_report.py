"""What the doctor command says of the process that looks at files: how strictly this host confines it."""

from __future__ import annotations

from cdn.media.confinement import Level
from cdn.media.inspections import LevelFound
from vmbackend.errors import BackendUnavailable

NAME = "confinement of CDN files"
FIX = "run the platform as root, and install what `make packages` names (docs/operations.md, CDN)"


def confinement_line(found: LevelFound) -> tuple[str, bool, str, str]:
    """Name, whether it is as strict as can be, message, fix. Looks at a picture of one pixel."""
    try:
        level = found.level()
    except BackendUnavailable as error:
        return NAME, False, str(error), FIX
    message = f"uploaded files are looked at {level.value}"
    return NAME, level is Level.OWN_USER, message, "" if level is Level.OWN_USER else FIX
