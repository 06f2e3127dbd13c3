"""Releases on disk: what a deploy, a switch, a rename and a removal leave."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import brotli
import pytest
import zstandard

from common.content_times import content_time_ns
from pages.releases.content_names import name_has_content_hash
from pages.releases.disk_use import BLOCK, block_bytes, names_bytes
from pages.releases.errors import ExportDamaged, NameTaken, StoreError
from pages.releases.export import export_receive
from pages.releases.limits import ExportLimits
from pages.releases.manifest import read_manifest
from pages.releases.store import PageStore, ReleaseFiles
from pages.releases.store_paths import PageName
from tests.pages.archives import archive_of
from tests.pages.stores import TEXT, live_files, release_make, unfinished

SITE = {"index.html": TEXT, "app-B1xYz9aQ.js": TEXT + b"1", "small.txt": b"small", "photo.jpg": TEXT + b"2"}
DOMAIN = "pages.example.org"


@pytest.fixture
def store(tmp_path: Path) -> PageStore:
    return PageStore(tmp_path / "pages")


def deploy(store: PageStore, number: int, files: Mapping[str, bytes], page: str = "pg_1") -> ReleaseFiles:
    made = release_make(store, page, number, archive_of(dict(files)))
    store.release_publish(page, number)
    return made


def test_a_release_is_served_after_it_is_published(store: PageStore) -> None:
    made = release_make(store, "pg_1", 1, archive_of(SITE))
    assert (made.files, made.bytes, made.skipped) == (4, sum(map(len, SITE.values())), [])
    assert store.release_live("pg_1") is None
    store.release_publish("pg_1", 1)
    assert store.release_live("pg_1") == 1
    found = live_files(store, "pg_1")
    assert {path: found[path] for path in SITE} == SITE
    assert unfinished(store) == []


def test_copies_of_text_are_made_where_they_save_a_tenth(store: PageStore) -> None:
    noise = os.urandom(16000)
    deploy(store, 1, SITE | {"noise.js": noise, "page.HTML": TEXT})
    found = live_files(store, "pg_1")
    unpack = {".br": brotli.decompress, ".gz": gzip.decompress, ".zst": zstandard.decompress}
    copies = {path: unpack[Path(path).suffix](data) for path, data in found.items() if Path(path).suffix in unpack}
    expected = [path for path in ("index.html", "app-B1xYz9aQ.js", "page.HTML") for _ in unpack]
    assert sorted(path.rpartition(".")[0] for path in copies) == sorted(expected)
    for path, data in copies.items():
        assert data == found[path.rpartition(".")[0]]
    files = read_manifest(store.paths.release("pg_1", 1))
    assert {path: bool(file.copies) for path, file in files.items()} == {
        path: path in expected for path in (*SITE, "noise.js", "page.HTML")
    }


def test_copies_have_times_of_their_contents_too(store: PageStore) -> None:
    deploy(store, 1, SITE)
    public = store.paths.current("pg_1") / "public"
    for path, data in live_files(store, "pg_1").items():
        assert (public / path).stat().st_mtime_ns == content_time_ns(sha256(data).hexdigest())


def test_files_equal_to_those_of_a_kept_release_are_links_with_their_copies(store: PageStore) -> None:
    deploy(store, 1, SITE)
    moved = {
        "index.html": TEXT + b"new",
        "moved/app-B1xYz9aQ.js": SITE["app-B1xYz9aQ.js"],
        "photo.jpg": SITE["photo.jpg"],
    }
    deploy(store, 2, moved)
    one, two = (store.paths.release("pg_1", number) / "public" for number in (1, 2))
    for ending in ("", ".br", ".zst", ".gz"):
        assert (one / f"app-B1xYz9aQ.js{ending}").samefile(two / f"moved/app-B1xYz9aQ.js{ending}")
        assert not (one / f"index.html{ending}").samefile(two / f"index.html{ending}")
    assert (one / "photo.jpg").samefile(two / "photo.jpg")


def test_contents_are_counted_once(store: PageStore) -> None:
    deploy(store, 1, SITE)
    first = store.page_bytes("pg_1")
    in_blocks = sum(block_bytes(len(data)) for data in live_files(store, "pg_1").values())
    assert first == in_blocks + names_bytes(SITE)
    more = SITE | {"more.bin": b"x" * 5000}
    deploy(store, 2, more)
    assert store.page_bytes("pg_1") == first + 2 * BLOCK + names_bytes(more)


def test_a_release_never_changes(store: PageStore) -> None:
    deploy(store, 1, SITE)
    with pytest.raises(StoreError):
        release_make(store, "pg_1", 1, archive_of({"index.html": b"other"}))
    assert live_files(store, "pg_1")["index.html"] == TEXT
    assert unfinished(store) == []
    with pytest.raises(StoreError):
        store.release_publish("pg_1", 2)
    assert store.release_live("pg_1") == 1


CHUNKS = {"index.html": b"1", "a/app-B1xYz9aQ.js": TEXT, "a/plain.js": TEXT + b"p", "about-B1xYz9aQ.html": b"1"}


def test_chunks_of_the_last_release_are_retained_for_a_day(store: PageStore) -> None:
    deploy(store, 1, CHUNKS)
    deploy(store, 2, {"index.html": b"2", "a/app-C2xYz9aQ.js": TEXT + b"2"})
    retained = store.paths.page("pg_1") / "retained"
    names = {str(path.relative_to(retained)) for path in retained.rglob("*") if path.is_file()}
    assert names == {f"a/app-B1xYz9aQ.js{ending}" for ending in ("", ".br", ".zst", ".gz")}
    until = (store.paths.page("pg_1") / "retained.json").stat().st_mtime
    assert not store.expire_retained("pg_1", until + 86400 - 60)
    assert (retained / "a/app-B1xYz9aQ.js").read_bytes() == TEXT
    assert store.expire_retained("pg_1", until + 86400 + 60)
    assert list(retained.rglob("*")) == []


def test_a_retained_chunk_outlives_its_release(store: PageStore) -> None:
    for number in range(1, 4):
        deploy(store, number, {"index.html": b"%d" % number, f"app-B1xYz9a{number}.js": b"%d" % number})
    assert store.trim_releases("pg_1", {3}) == [1, 2]
    retained = store.paths.page("pg_1") / "retained"
    assert sorted(path.name for path in retained.iterdir()) == ["app-B1xYz9a1.js", "app-B1xYz9a2.js"]
    assert (retained / "app-B1xYz9a1.js").read_bytes() == b"1"


def test_a_rollback_is_a_switch_to_an_earlier_release(store: PageStore) -> None:
    deploy(store, 1, CHUNKS)
    deploy(store, 2, {"index.html": b"2", "new-C2xYz9aQ.js": b"2"})
    store.release_publish("pg_1", 1)
    assert live_files(store, "pg_1")["index.html"] == b"1"
    assert (store.paths.page("pg_1") / "retained" / "new-C2xYz9aQ.js").read_bytes() == b"2"
    store.release_publish("pg_1", 1)
    assert store.release_live("pg_1") == 1


def test_the_live_release_is_never_removed(store: PageStore) -> None:
    for number in range(1, 6):
        deploy(store, number, {"index.html": b"%d" % number})
    store.release_publish("pg_1", 2)
    assert store.trim_releases("pg_1", {4, 5}) == [1, 3]
    assert store.release_numbers("pg_1") == [2, 4, 5]
    assert store.trim_releases("pg_1", set()) == []
    assert live_files(store, "pg_1") == {"index.html": b"2"}


def test_a_trim_removes_no_newer_release_than_those_it_knows(store: PageStore) -> None:
    """The process that trims may have been paused while another made the next release."""
    for number in range(1, 5):
        release_make(store, "pg_1", number, archive_of({"index.html": b"%d" % number}))
    assert store.trim_releases("pg_1", {1, 3}) == [2]
    assert store.release_numbers("pg_1") == [1, 3, 4]


def test_names_lead_to_the_page(store: PageStore) -> None:
    deploy(store, 1, SITE)
    slug, other = PageName.slug(DOMAIN, "blog"), PageName.slug("pages.example.org", "blog")
    for name in (slug, other, slug):
        store.name_add("pg_1", name)
        assert (store.root / name.place / "current" / "public" / "small.txt").read_bytes() == b"small"
    new = PageName.slug(DOMAIN, "news")
    store.name_rename("pg_1", slug, new)
    assert not os.path.lexists(store.root / slug.place)
    assert (store.root / new.place).samefile(store.paths.page("pg_1"))
    store.name_rename("pg_1", slug, new)
    elsewhere = PageName.slug("other.example.org", "news")
    store.name_rename("pg_1", new, elsewhere)
    assert (store.root / elsewhere.place).samefile(store.paths.page("pg_1"))
    for name in (elsewhere, other, other):
        store.name_remove("pg_1", name)
        assert not os.path.lexists(store.root / name.place)


def test_a_name_of_another_page_is_never_replaced(store: PageStore) -> None:
    for page in ("pg_1", "pg_2"):
        deploy(store, 1, {"index.html": page.encode()}, page)
    mine, theirs = PageName.slug(DOMAIN, "mine"), PageName.slug(DOMAIN, "theirs")
    store.name_add("pg_1", mine)
    store.name_add("pg_2", theirs)
    for attempt in (lambda: store.name_add("pg_1", theirs), lambda: store.name_rename("pg_1", mine, theirs)):
        with pytest.raises(NameTaken):
            attempt()
    store.name_remove("pg_1", theirs)
    store.page_delete("pg_1", [mine, theirs])
    assert (store.root / theirs.place / "current" / "public" / "index.html").read_bytes() == b"pg_2"
    assert not os.path.lexists(store.root / mine.place)


def test_a_deleted_page_leaves_nothing(store: PageStore) -> None:
    deploy(store, 1, SITE)
    name = PageName.slug(DOMAIN, "blog")
    store.name_add("pg_1", name)
    for _ in range(2):
        store.page_delete("pg_1", [name])
    left = [path for path in store.root.rglob("*") if not path.is_dir() or path.is_symlink()]
    assert left == []
    with pytest.raises(StoreError):
        store.name_add("pg_1", name)


@pytest.mark.parametrize("bad", ["", "..", "a/b", "a.b", "\0", "x" * 65])
def test_ids_are_plain_names(store: PageStore, bad: str) -> None:
    for attempt in (lambda: store.page_delete(bad), lambda: store.paths.incoming(bad)):
        with pytest.raises(ValueError, match="not an id"):
            attempt()


@pytest.mark.parametrize(
    ("domain", "slug"),
    [("", "a"), ("..", "a"), ("a/b", "a"), ("a.b", ".."), ("a.b", "A"), ("a.b", "a.b"), ("a.b", "")],
)
def test_names_are_plain_labels(domain: str, slug: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        PageName.slug(domain, slug)


def test_an_export_that_fails_leaves_nothing(store: PageStore) -> None:
    with pytest.raises(ExportDamaged), store.incoming_open("op_1") as fd:
        export_receive(io.BytesIO(archive_of(SITE)[:3000]), fd, ExportLimits())
    assert unfinished(store) == []


def test_rules_are_taken_out_of_what_is_served(store: PageStore) -> None:
    files = {"index.html": b"x", "_headers": b"/*\n  A: b\n", "_redirects": b"/a /b\nwrong\n", "d/_headers": b"x"}
    made = deploy(store, 1, files)
    assert (made.has_headers, made.has_redirects, made.files) == (True, True, 2)
    assert [(skipped.path, skipped.reason) for skipped in made.skipped] == [("_redirects:2", "not `from to [status]`")]
    assert set(live_files(store, "pg_1")) == {"index.html", "d/_headers"}
    release = store.paths.release("pg_1", 1)
    assert (release / "has-headers").exists()
    assert (release / "has-redirects").exists()


def test_compressed_files_of_the_export_stay_where_they_are_copies(store: PageStore) -> None:
    good = {"a.js.gz": gzip.compress(TEXT), "a.js.br": brotli.compress(TEXT), "a.js.zst": zstandard.compress(TEXT)}
    bad = {"b.bin.gz": gzip.compress(b"other"), "b.bin.br": b"garbage", "b.bin.zst": zstandard.compress(TEXT)[:-5]}
    bombs = {"c.txt.gz": gzip.compress(bytes(50 << 20)), "c.txt.br": brotli.compress(bytes(50 << 20), quality=1)}
    alone = {"data.tar.gz": b"anything"}
    made = deploy(store, 1, {"a.js": TEXT, "b.bin": TEXT, "c.txt": b"c"} | good | bad | bombs | alone)
    found = live_files(store, "pg_1")
    assert found == {"a.js": TEXT, "b.bin": TEXT, "c.txt": b"c"} | good | alone
    assert sorted(skipped.path for skipped in made.skipped) == sorted([*bad, *bombs])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("index-BZ3kf9aX.js main.8f3b2a1c.chunk.js app-5f2c3d4e.css chunk-ABCDEFGH.js index-DkLmNoPq.js "
         "a/b/index-B1-x_9aZ.js "
         "0a1b2c3d4e5f6.js index-BZ3kf9aX.js.map 123-0a1b2c3d4e5f.js logo.d4f5a6b7.svg _app-7f1c8a22d5b3e9.js", True),
        ("index.html jquery-migrate.js my-component2.js MyComponent.js my-FileList.js report-20240101.csv es2015.js "
         "bootstrap.min.js font-awesome.css app.js index-BZ3kf9aX.html robots.txt 12345678.js jquery-3.7.1.min.js "
         "photo-20240101120000.jpg BZ3kf9aX8f3b2a1c/app.js index-BZ3kf9aX", False),
    ],
)  # fmt: skip
def test_which_names_carry_a_hash(names: str, expected: bool) -> None:
    assert {name: name_has_content_hash(name) for name in names.split()} == dict.fromkeys(names.split(), expected)
