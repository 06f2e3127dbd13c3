"""The synchronous client is the asynchronous one, made by `clients/python/generate.py`."""

from __future__ import annotations

import runpy
from pathlib import Path

from django.conf import settings


def test_the_synchronous_client_is_current() -> None:
    made = runpy.run_path(str(Path(settings.ROOT) / "clients" / "python" / "generate.py"))["modules"]()
    assert {path.name for path in made} == {"client.py", "transport.py", "workspaces.py"}
    assert [path.name for path, text in made.items() if path.read_text() != text] == []
