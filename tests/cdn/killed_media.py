"""A worker that is killed (SIGKILL) at one place of the pipeline.

A place is `before` or `after` and the name of a function of the pipeline, which may be that of a module it uses.
"""

from __future__ import annotations

import os
import signal
from importlib import import_module
from typing import Any

from cdn.media import pipeline
from tests.killed_process import killed_process

# In the order in which the pipeline comes to them.
PLACES = (
    "after cdn.services.processing.processing_claim",
    "after cdn.storage.work_folder",
    "after cdn.media.pipeline.type_sniff",
    "before cdn.media.pipeline.run_inspection",
    "after cdn.media.pipeline.run_inspection",
    "before cdn.storage.local.LocalStore.save",
    "after cdn.storage.local.LocalStore.save",
    "before cdn.services.processing.processing_publish",
    "before cdn.services.processing.hold_end",
    "after cdn.services.processing.processing_publish",
    "after cdn.storage.remove_part",
)
REFUSAL_PLACES = (
    "before cdn.services.processing.processing_reject",
    "before cdn.services.rejection.change_pools",
    "before cdn.services.rejection.remove_bytes",
    "before cdn.storage.removal.remove_work",
)


FILE, PLACE = "", ""


def media_killed(file_id: str, place: str) -> None:
    """Process the file in a process of its own, which dies there."""
    with killed_process() as process:
        assert process.kills_itself("tests.cdn.killed_media.process_until_death", FILE=file_id, PLACE=place)


def process_until_death() -> None:
    """In that process: the file FILE to PLACE."""
    _die_at(*PLACE.split())
    pipeline.file_process(FILE)


def _die_at(moment: str, path: str) -> None:
    owner, name = path.rsplit(".", 1)
    try:
        found: Any = import_module(owner)
    except ModuleNotFoundError:
        module, of_class = owner.rsplit(".", 1)
        found = getattr(import_module(module), of_class)
    original = getattr(found, name)

    def dying(*arguments: Any, **named: Any) -> Any:
        if moment == "after":
            original(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(found, name, dying)
