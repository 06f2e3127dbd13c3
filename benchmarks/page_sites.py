"""Pages that are served in `benchmarks.pages`: two files, one of 20 kB, and copies of the whole by the thousand."""

from __future__ import annotations

import io
import os
import random
import tarfile
from pathlib import Path

from pages.releases.export import export_receive
from pages.releases.limits import ExportLimits
from pages.releases.rules_files import SERVED
from pages.releases.store import PageStore
from pages.releases.store_paths import PUBLIC, PageName

DOMAIN = "pages.localhost"
SLUG = "site"
SMALL, LARGE = "/small.html", "/large.js"


def site_make(store: PageStore, slug: str = SLUG, number: int = 1, home: bytes = b"home") -> None:
    """A release as the product makes it, live."""
    with store.incoming_open(f"op_{number}") as incoming:
        received = export_receive(io.BytesIO(_archive(home)), incoming, ExportLimits(), store.known_contents(slug))
        store.release_create(slug, number, f"op_{number}", received)
    store.release_publish(slug, number)
    store.name_add(slug, PageName.slug(DOMAIN, slug))


def sites_copy(store: PageStore, count: int) -> None:
    """As many sites more, `site-0` on, whose files are links to those of the first: only names and folders differ."""
    source = store.paths.release(SLUG, 1) / PUBLIC
    for number in range(count):
        page_id = f"{SLUG}-{number}"
        public = store.paths.release(page_id, 1) / PUBLIC
        public.mkdir(parents=True)
        for file in source.iterdir():
            os.link(file, public / file.name)
        (public.parent / SERVED).symlink_to(PUBLIC)
        store.paths.current(page_id).symlink_to("releases/1")
        name = PageName.slug(DOMAIN, page_id)
        (store.root / name.place).symlink_to(name.target(page_id))


def _archive(home: bytes) -> bytes:
    words = [f"word{number}" for number in range(2000)]
    chosen = random.Random(7)
    large = " ".join(chosen.choice(words) for _ in range(4000)).encode()[:20_000]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in (("index.html", home), (SMALL[1:], b"<h1>small</h1>" * 8), (LARGE[1:], large)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def store_of(state: Path) -> PageStore:
    """The files of pages of an instance."""
    return PageStore(state / "pages")
