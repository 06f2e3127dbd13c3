"""A worker that is killed (SIGKILL) at one place of the pipeline: python -m tests.cdn.killed_media <file id> <place>.

A place is `before` or `after` and the name of a function of the pipeline, which may be that of a module it uses.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.killed_process import database_url

ROOT = Path(__file__).resolve().parents[2]
# In the order in which the pipeline comes to them.
PLACES = (
    "after cdn.services.processing.processing_claim",
    "after cdn.storage.work_folder",
    "after cdn.media.pipeline.type_sniff",
    "before cdn.media.pipeline.inspection_run",
    "after cdn.media.pipeline.inspection_run",
    "before cdn.storage.local.LocalStore.save",
    "after cdn.storage.local.LocalStore.save",
    "before cdn.services.processing.processing_publish",
    "before cdn.services.processing.hold_end",
    "after cdn.services.processing.processing_publish",
    "after cdn.storage.part_remove",
)
REFUSAL_PLACES = (
    "before cdn.services.processing.processing_reject",
    "before cdn.services.rejection.pools_change",
    "before cdn.services.rejection.bytes_remove",
    "before cdn.storage.removal.work_remove",
)


def media_killed(file_id: str, place: str) -> None:
    """Process the file in a process of its own, which dies there."""
    from django.conf import settings

    environment = {**os.environ, **settings.ENV.variables(), "PLATFORM_DATABASE_URL": database_url()}
    environment |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}", "DJANGO_SETTINGS_MODULE": "config.settings"}
    command = [sys.executable, "-m", "tests.cdn.killed_media", file_id, *place.split()]
    ended = subprocess.run(command, env=environment, cwd=ROOT, timeout=120, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]


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


def main() -> None:
    import django

    django.setup()
    from cdn.media.pipeline import file_process

    _die_at(sys.argv[2], sys.argv[3])
    file_process(sys.argv[1])


if __name__ == "__main__":
    main()
