"""Making releases in tests."""

from __future__ import annotations

import io

from pages.releases.export import export_receive
from pages.releases.limits import ExportLimits
from pages.releases.store import CLOCK, PageStore, ReleaseFiles
from tests.pages.archives import contents

TEXT = b"".join(b"line %d of a text that compresses well\n" % number for number in range(100))


def release_make(store: PageStore, page_id: str, number: int, archive: bytes) -> ReleaseFiles:
    """As an operation does."""
    operation = f"op_{page_id}_{number}"
    with store.incoming_open(operation) as fd:
        received = export_receive(io.BytesIO(archive), fd, ExportLimits(), store.known_contents(page_id))
        return store.release_create(page_id, number, operation, received)


def live_files(store: PageStore, page_id: str) -> dict[str, bytes]:
    """What is served."""
    return contents((store.paths.current(page_id) / "public").resolve())


def unfinished(store: PageStore) -> list[str]:
    """What is being made or removed."""
    return [path.name for folder in ("incoming", "trash") for path in (store.root / folder).iterdir()]


def left_files(store: PageStore) -> list[str]:
    """Files and links of pages."""
    found = [path for path in store.root.rglob("*") if path.is_file() or path.is_symlink()]
    return [path.name for path in found if path.name != CLOCK]
