"""A host with the fake driver, a running workspace with a site in it, and the worker `pages` in the host's threads."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from pages import publication, tasks  # noqa: F401 registers the tasks
from pages.releases.store import PageStore
from tests.callers import Caller
from tests.pages.edge_site import Edge, open_site
from vmbackend.backend import machines_dir


@pytest.fixture(scope="module")
def edge() -> Iterator[Edge]:
    """An edge with the pages `site` (deployed twice), `spa` and `bare`."""
    with open_site() as made:
        yield made


class Site:
    """A running workspace, whose folder /site is `folder` on this host."""

    def __init__(self, api: Caller, workspace_id: str, folder: Path) -> None:
        self.api = api
        self.workspace_id = workspace_id
        self.folder = folder

    @property
    def archive(self) -> Path:
        """What the guest sends in place of the folder, where this file is there."""
        return self.folder.parent.parent / "archive.tar"

    def write(self, **files: str) -> None:
        """By name, `_` for the dot: `index_html="..."`."""
        for name, content in files.items():
            (self.folder / name.replace("_", ".")).write_text(content)

    def create(self, **fields: Any) -> Any:
        return self.api.post("/pages", {"workspace_id": self.workspace_id, "path": "/site", **fields})

    def deploy(self, slug: str, **fields: Any) -> Any:
        return self.api.post(f"/pages/{slug}/deploy", fields)


@pytest.fixture
def store() -> Iterator[PageStore]:
    """The files of the pages of this test."""
    publication._store.cache_clear()
    # What a held task of an earlier test has made after the end of its own.
    shutil.rmtree(settings.STATE / "pages", ignore_errors=True)
    yield publication.page_store()
    shutil.rmtree(settings.STATE / "pages", ignore_errors=True)
    # Later tests of this process that do not ask for it make their folders again.
    publication._store.cache_clear()


@pytest.fixture
def site(vmhost: Any, api: Caller, store: PageStore) -> Site:
    made = api.post("/workspace", {"name": "My site", "image": "localhost/tiny:1"}).json()["workspace"]
    folder = machines_dir() / "directories" / made["id"] / "disk/site"
    folder.mkdir(parents=True)
    found = Site(api, made["id"], folder)
    found.write(index_html="one")
    return found


@pytest.fixture
def served(store: PageStore) -> Callable[[str], str | None]:
    """The file that a path below the name of a page leads to, as the edge finds it."""

    def read(path: str) -> str | None:
        slug, _, rest = path.partition("/")
        found = store.root / "by-slug/pages.localhost" / slug / "current/public" / (rest or "index.html")
        return found.read_text() if found.is_file() else None

    return read
