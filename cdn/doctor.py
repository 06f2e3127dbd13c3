"""Checks of `manage.py doctor` for the CDN: host and store (`delivery_doctor.py`), and the confinement of the process
that inspects files.
"""

from __future__ import annotations

from collections.abc import Iterator

from cdn.delivery_doctor import delivery_lines
from cdn.media.confinement import Level
from cdn.media.inspections import LevelFound
from vmbackend.errors import BackendUnavailable

NAME = "confinement of CDN files"
FIX = "run the platform as root, and install the packages that `make packages` lists (docs/operations.md, CDN)"
Line = tuple[str, bool, str, str]


def doctor_lines() -> Iterator[Line]:
    """Yield the lines, each with name, whether it is as it should be, message, fix.

    Inspects a picture of one pixel.
    """
    yield from delivery_lines()
    yield confinement_line(LevelFound())


def confinement_line(found: LevelFound) -> Line:
    """Return how the inspection is confined. Starts one process for each level that does not answer."""
    try:
        level = found.level()
    except BackendUnavailable as error:
        return NAME, False, str(error), FIX
    message = f"uploaded files are inspected {level.value}"
    return NAME, level is Level.OWN_USER, message, "" if level is Level.OWN_USER else FIX
