"""How many of our files a request enters: a reader who wants to know what it does has to open these."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from django.conf import settings

from tests.callers import Caller
from tests.fakehost import FakeHost

ROOT = Path(settings.ROOT)
# 53 of them on the day of the first count.
AT_MOST = 60


class EnteredFiles:
    """Within the context: the files of the platform of which this thread calls a function."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __enter__(self) -> EnteredFiles:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._seen.add(frame.f_code.co_filename)

    @property
    def names(self) -> list[str]:
        inside = [Path(name).relative_to(ROOT) for name in self._seen if name.startswith(f"{ROOT}/")]
        return sorted(str(name) for name in inside if name.parts[0] not in (".venv", "tests"))


@pytest.mark.django_db(transaction=True)
def test_a_creation_enters_few_files(api: Caller, vmhost: FakeHost) -> None:
    vmhost.hold_tasks()
    sent = {"name": "First one", "image": "localhost/tiny:1", "wait_ready": False}
    assert api.post("/workspace", sent | {"slug": "before"}).status_code == 202  # what is read once for a process
    with EnteredFiles() as entered:
        answer = api.post("/workspace", sent)
    assert answer.status_code == 202
    if target := os.environ.get("ENTERED_FILES"):
        Path(target).write_text("\n".join(entered.names))
    assert "workspaces/crud/views.py" in entered.names
    assert len(entered.names) <= AT_MOST, entered.names
