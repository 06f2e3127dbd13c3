"""Inspection of files in a process that is confined as strictly as this host allows."""

from __future__ import annotations

import logging
import os
import py_compile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from cdn.inspection.messages import Findings, InspectionOrder
from cdn.media.confinement import ROOT, Level, levels
from cdn.media.runner import InspectionUnavailable, execute_inspection
from vmbackend.errors import BackendUnavailable

logger = logging.getLogger(__name__)

# A level that failed once is tried again: the host may have been without memory for a moment.
RETRY_SECONDS = 300.0
_PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010800000000"
    "3a7e9b550000000a49444154789c63600000000200014865a4ea0000000049454e44ae426082"
)


def run_inspection(file: int, order: InspectionOrder, outputs: Sequence[Path], tick: Callable[[], None]) -> Findings:
    """Run `execute_inspection`, confined as strictly as this host allows. Raise InspectionUnavailable, OSError."""
    try:
        return execute_inspection(found_level.level(), file, order, outputs, tick)
    except BackendUnavailable as error:
        raise InspectionUnavailable(str(error)) from error


def is_answering(level: Level) -> bool:
    """Return whether a process with this confinement inspects a picture of one pixel."""
    file = os.memfd_create("picture", os.MFD_CLOEXEC)
    try:
        os.write(file, _PICTURE)
        found = execute_inspection(level, file, InspectionOrder("image/png"), (), lambda: None)
        return (found.width, found.reason) == (1, "")
    except (BackendUnavailable, InspectionUnavailable, OSError) as error:
        logger.warning("the inspection process failed on a test picture: %s", error)
        return False
    finally:
        os.close(file)


class LevelFound:
    """Strictest level at which a process of this host has answered.

    If the host may allow a stricter level, that is tried again after a while.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._level: Level | None = None
        self._retry_at = 0.0

    def level(self) -> Level:
        """Return the level; try the levels first if needed. Raise BackendUnavailable if no process can be started at
        all.
        """
        with self._lock:
            if self._level is None or (self._retry_at and time.monotonic() >= self._retry_at):
                self._level = _level_tried()
                is_strictest = self._level is next(levels())
                self._retry_at = 0.0 if is_strictest else time.monotonic() + RETRY_SECONDS
                logger.info("files are inspected by a process confined %s", self._level.value)
            return self._level


def _level_tried() -> Level:
    _inspection_compile()
    for level in levels():
        if is_answering(level):
            return level
        logger.warning("files cannot be inspected by a process confined %s", level.value)
    raise BackendUnavailable("No process that inspects files can be started; run the doctor command.")


def _inspection_compile() -> None:
    """Compile the modules of the confined process: it can write no files, and would compile them each time."""
    for path in (ROOT / "cdn" / "inspection").glob("*.py"):
        with suppress(OSError, py_compile.PyCompileError):
            py_compile.compile(str(path), doraise=True)


found_level = LevelFound()
