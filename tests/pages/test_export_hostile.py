"""Exports as hostile guests send them: nothing outside the folder, no memory, no endless reading."""

from __future__ import annotations

import io
import random
import tarfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pages.releases.byte_source import PIECE
from pages.releases.errors import ExportDamaged, ExportLimit
from pages.releases.export import export_receive
from pages.releases.limits import ExportLimits
from tests.pages.archives import (
    END,
    Endless,
    archive_of,
    contents,
    entry,
    header,
    long_name,
    opened,
    padded,
    pax,
    receive,
    record,
    with_checksum,
)

GIB = 1 << 30
SECRET = b"of the host"
SYM, HARD = tarfile.SYMTYPE, tarfile.LNKTYPE


# What each tries: to write to, to read or to replace `outside/secret`, which lies beside the folder.
def escapes(outside: str) -> dict[str, bytes]:
    return {
        "parent": entry("../outside/secret", b"mine"),
        "parent inside": entry("a/../../outside/secret", b"mine"),
        "absolute": entry(f"{outside}/secret", b"mine"),
        "link to a parent, then a file through it": entry("d", kind=SYM, link="..")
        + entry("d/outside/secret", b"mine"),
        "absolute link, then a file through it": entry("d", kind=SYM, link=outside) + entry("d/secret", b"mine"),
        "chain of links": entry("a", kind=SYM, link=".")
        + entry("b", kind=SYM, link="a/..")
        + entry("b/outside/secret", b"mine"),
        "link replaced by a folder": entry("d", kind=SYM, link="../outside")
        + header("d", kind=tarfile.DIRTYPE)
        + entry("d/secret", b"mine"),
        "folder replaced by a link": entry("d/a", b"a")
        + entry("d", kind=SYM, link="../outside")
        + entry("d/secret", b"mine"),
        "a file written over a link": entry("f", kind=SYM, link="../outside/secret") + entry("f", b"mine"),
        "hard link out": entry("h", kind=HARD, link="../outside/secret") + entry("h", b"mine"),
        "absolute hard link": entry("h", kind=HARD, link=f"{outside}/secret"),
        "hard link to a link": entry("s", kind=SYM, link="../outside/secret") + entry("h", kind=HARD, link="s"),
        "hard link through a link": entry("d", kind=SYM, link="../outside") + entry("h", kind=HARD, link="d/secret"),
        "link through a link": entry("d", kind=SYM, link="../outside") + entry("s", kind=SYM, link="d/secret"),
        "link to the process": entry("s", kind=SYM, link="/proc/self/environ"),
        "pax name": pax(record("path", b"../outside/secret")) + entry("a", b"mine"),
        "pax link": pax(record("linkpath", b"../outside/secret")) + entry("a", kind=SYM, link="b"),
        "long name": long_name(b"../outside/secret") + entry("a", b"mine"),
        "long link": long_name(b"../outside/secret", tarfile.GNUTYPE_LONGLINK) + entry("a", kind=SYM, link="b"),
        "global pax name": pax(record("path", b"../outside/secret"), tarfile.XGLTYPE) + entry("a", b"mine"),
        "ustar prefix": with_checksum(bytearray(header("secret", 4))[:345] + bytearray(b"../outside".ljust(167, b"\0")))
        + padded(b"mine"),
        "device": header("d", kind=tarfile.BLKTYPE) + entry("d", b"mine"),
    }


@pytest.mark.parametrize("attack", escapes(""))
def test_nothing_leaves_the_folder_or_comes_into_it(tmp_path: Path, attack: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    before = (outside / "secret").stat()
    sent = entry("index.html", b"home") + escapes(str(outside))[attack]
    receive(sent + END, tmp_path / "in")
    after = (outside / "secret").stat()
    assert (outside / "secret").read_bytes() == SECRET
    assert (after.st_ino, after.st_nlink, after.st_mode) == (before.st_ino, 1, before.st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "outside"]
    assert SECRET not in contents(tmp_path / "in").values()


BOMBS = {
    "pax": header("p", 8 * GIB, tarfile.XHDTYPE),
    "global pax": header("p", 8 * GIB, tarfile.XGLTYPE),
    "solaris pax": header("p", 8 * GIB, tarfile.SOLARIS_XHDTYPE),
    "long name": header("l", 8 * GIB, tarfile.GNUTYPE_LONGNAME),
    "long link": header("l", 8 * GIB, tarfile.GNUTYPE_LONGLINK),
    "file": header("f", 10 * GIB),
    "file by pax": pax(record("size", b"%d" % (10 * GIB))) + header("f"),
    "pax size of many digits": pax(record("size", b"9" * 5000)) + header("f"),
    "negative size": header("f", field=b"\xff" * 12),
    "largest size": header("f", field=b"\x80" + b"\xff" * 11),
    "skipped device with data": header("x", 10 * GIB, b"Z"),
    "dotfile": header(".f", 10 * GIB),
    "sparse giant": header("s", 10 * GIB, tarfile.GNUTYPE_SPARSE),
    "two long names": long_name(b"a") + long_name(b"b"),
    "two pax headers": pax(b"") + pax(b""),
    "pax record longer than its header": pax(b"99 path=a\n"),
    "pax record of no length": pax(b"0 path=a\n"),
    "pax record without a value": pax(b"8 path\nx\n"),
    "pax record that counts less than itself": pax(b"3 path=a\n"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_by_its_header(tmp_path: Path, bomb: str) -> None:
    """Before any of its gigabytes is read, or of what is left out."""
    stream = Endless(entry("a", b"a") + BOMBS[bomb], lambda size: b"x" * size)
    with_limits = ExportLimits(bytes=10 << 20)
    tracemalloc.start()
    try:
        with pytest.raises((ExportLimit, ExportDamaged)):
            _receive_from(stream, tmp_path / "in", with_limits)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert stream.sent <= len(entry("a", b"a") + BOMBS[bomb]) + PIECE
    assert peak < 4 << 20


def _receive_from(stream: Endless, folder: Path, limits: ExportLimits) -> None:
    folder.mkdir()
    with opened(folder) as fd:
        export_receive(stream, fd, limits)


def test_sparse_maps_without_end_are_damage(tmp_path: Path) -> None:
    block = bytearray(header("s", 0, tarfile.GNUTYPE_SPARSE))
    block[482] = 1
    stream = Endless(with_checksum(block), lambda size: b"\1" * size)
    with pytest.raises(ExportDamaged):
        _receive_from(stream, tmp_path / "in", ExportLimits())
    assert stream.sent <= 2 * PIECE


def test_a_sparse_file_of_pax_is_left_out_with_its_data(tmp_path: Path) -> None:
    sparse = pax(record("GNU.sparse.major", b"1") + record("GNU.sparse.realsize", b"%d" % (1 << 50)))
    received = receive(sparse + entry("s", b"1\n0\n512\n".ljust(1024, b"\0")) + entry("a", b"a") + END, tmp_path / "in")
    assert contents(tmp_path / "in") == {"a": b"a"}
    assert [skipped.reason for skipped in received.skipped] == ["sparse file"]


MANY = {
    "files": lambda number: header(f"{number:07d}"),
    "one name": lambda number: header("a"),
    "folders": lambda number: header(f"{number:07d}", kind=tarfile.DIRTYPE),
    "links": lambda number: entry(f"{number:07d}", kind=SYM, link="a"),
    "dotfiles": lambda number: header(f".{number:07d}"),
    "global headers": lambda number: pax(b"", tarfile.XGLTYPE),
    "left out with data": lambda number: entry(f".{number:07d}", b"x" * 4096),
}


@pytest.mark.parametrize("kind", MANY)
def test_a_million_entries_end_at_the_limit(tmp_path: Path, kind: str) -> None:
    sent = 0

    def stream() -> Iterator[bytes]:
        nonlocal sent
        for number in range(1_000_000):
            sent += 1
            yield MANY[kind](number)

    with pytest.raises(ExportLimit):
        receive(stream(), tmp_path / "in", ExportLimits(files=500, bytes=1 << 20))
    assert sent <= 2001


def test_a_chain_of_links_costs_as_much_as_links_without_one(tmp_path: Path) -> None:
    """The target of each is long, and each leads to the next one: it is resolved once, and not by all before it."""

    def seconds(name: str, following: int) -> float:
        long_target = b"x/../" * 700
        sent = b"".join(
            long_name(long_target + b"%05d" % (number + following), tarfile.GNUTYPE_LONGLINK)
            + header(f"{number:05}", kind=SYM)
            for number in range(1500)
        )
        begun = time.process_time()
        assert receive(sent + END, tmp_path / name, ExportLimits(files=60_000)).skipped_count == 1500
        return time.process_time() - begun

    assert seconds("chain", 1) < 4 * seconds("others", 90_000)


DEEP = "d/" * 500


def link(path: str, target: str) -> bytes:
    return long_name(path.encode()) + long_name(target.encode(), tarfile.GNUTYPE_LONGLINK) + header("l", kind=SYM)


# What one of many entries is; each costs as much as its path has folders.
DEEP_ENTRIES = {
    "links to a deep file": (lambda number: link(f"{number}", f"{DEEP}f"), "path_steps"),
    "links to nothing in a deep folder": (lambda number: link(f"{number}", f"{DEEP}g"), "path_steps"),
    "links in a deep folder": (lambda number: link(f"{DEEP}{number}", "/"), "path_steps"),
    "long targets": (lambda number: link(f"{number}", "./" * 2000), "path_steps"),
    "files in deep folders by turns": (
        lambda number: long_name(f"{number % 2}/{DEEP[10:]}{number}".encode()) + entry("f", b"%d" % number),
        "path_steps",
    ),
    "deep folders": (
        lambda number: long_name(f"{number}/{DEEP}".encode()) + header("d", kind=tarfile.DIRTYPE),
        "files",
    ),
    "links in deep folders": (lambda number: link(f"{number}/{DEEP}l", "a"), "files"),
}


@pytest.mark.parametrize("kind", DEEP_ENTRIES)
def test_deep_paths_end_at_the_limit(tmp_path: Path, kind: str) -> None:
    """So few would cost little: with as many as there may be, paths of this depth took minutes and gigabytes."""
    made, limit = DEEP_ENTRIES[kind]
    sent = long_name(f"{DEEP}f".encode()) + entry("f", b"") + b"".join(made(number) for number in range(150))
    with pytest.raises(ExportLimit) as raised:
        receive(sent + END, tmp_path / "in", ExportLimits(files=1600 if limit == "path_steps" else 600))
    assert raised.value.limit_name == limit


def test_ordinary_links_in_folders_of_some_depth_are_within_the_limit(tmp_path: Path) -> None:
    """As package managers make them."""
    files = {f"node_modules/store/p{number}/node_modules/p/lib/fjs": b"" for number in range(150)}
    links = b"".join(link(f"a/b/c/node_modules/l{n}", f"../../../../node_modules/store/p{n}/node_modules/p/lib/fjs")
                     for n in range(150))  # fmt: skip
    received = receive(links + archive_of(files), tmp_path / "in", ExportLimits(files=700))
    assert (len(received.files), received.skipped_count) == (300, 0)


def test_folders_of_few_files_cost_no_more_inodes_than_files_may(tmp_path: Path) -> None:
    sent = (entry(f"{number}/" + "d/" * 40 + "f", b"") for number in range(1000))
    with pytest.raises(ExportLimit):
        receive(sent, tmp_path / "in", ExportLimits(files=200))
    assert len(list((tmp_path / "in").rglob("*"))) <= 400


@pytest.mark.parametrize("seed", range(20))
def test_garbage_is_damage(tmp_path: Path, seed: int) -> None:
    with pytest.raises(ExportDamaged):
        receive(random.Random(seed).randbytes(2048), tmp_path / "in")


@pytest.mark.parametrize("name", ["gz", "bz2", "xz"])
def test_a_compressed_archive_is_damage(tmp_path: Path, name: str) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{name}") as archive:
        archive.addfile(tarfile.TarInfo("a"))
    with pytest.raises(ExportDamaged):
        receive(buffer.getvalue().ljust(1024, b"\1"), tmp_path / "in")


HONEST = archive_of({"index.html": b"home", "a/" + "n" * 120: b"long" * 300}, tarfile.PAX_FORMAT) + entry(
    "s", kind=SYM, link="index.html"
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(HONEST) - 1), st.integers(0, 255)), max_size=6), st.booleans())
def test_a_changed_archive_is_received_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], checksums: bool
) -> None:
    sent = bytearray(HONEST)
    for place, value in changes:
        sent[place] = value
    if checksums:
        # So that changes are not only found by the checksum of their header.
        for place in {place // 512 * 512 for place, _ in changes}:
            if sent[place + 257 : place + 262] == b"ustar":
                sent[place : place + 512] = with_checksum(bytearray(sent[place : place + 512]))
    base = tmp_path_factory.mktemp("fuzz")
    with suppress(ExportLimit, ExportDamaged):
        receive(bytes(sent), base / "in", ExportLimits(bytes=1 << 20, file_bytes=1 << 16))
    assert [path.name for path in base.iterdir()] == ["in"]
    contents(base / "in")


def test_a_folder_that_is_replaced_by_a_link_is_not_followed(tmp_path: Path) -> None:
    """Nothing of the platform does so; the descriptors would hold even then."""
    (tmp_path / "outside").mkdir()
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "d").symlink_to(tmp_path / "outside")
    with opened(folder) as fd:
        received = export_receive(io.BytesIO(entry("d/f", b"mine") + END), fd, ExportLimits())
    assert received.files == {}
    assert list((tmp_path / "outside").iterdir()) == []
