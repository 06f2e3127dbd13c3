"""Links in what is published: those that become files, those that are left out, and their limits."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from pages.releases.errors import ExportLimit
from pages.releases.limits import ExportLimits
from tests.pages.archives import END, archive_of, contents, entry, long_name, receive


@pytest.mark.parametrize(
    ("links", "files"),
    [
        ([("l", "a.txt", "s")], ["l"]),
        ([("f/l", "../a.txt", "s")], ["f/l"]),
        ([("f/l", "./../f/../a.txt", "s")], ["f/l"]),
        ([("l", "./a.txt", "h")], ["l"]),
        ([("1", "2", "s"), ("2", "3", "s"), ("3", "a.txt", "s")], ["1", "2", "3"]),
        ([("1", "2", "h"), ("2", "a.txt", "s")], ["1", "2"]),
        ([("1", "2", "s"), ("2", "1", "s")], []),
        ([("l", "l", "s")], []),
        ([("l", "../a.txt", "s")], []),
        ([("l", "f/../../in/a.txt", "s")], []),
        ([("l", "/etc/passwd", "s")], []),
        ([("l", "/etc/passwd", "h")], []),
        ([("l", "../../etc/passwd", "h")], []),
        ([("l", "gone", "s")], []),
        ([("l", ".", "s")], []),
        ([("l", "", "s")], []),
        ([("l", "", "h")], []),
        ([("a.txt", "f/b.txt", "s")], []),
        ([("a.txt/l", "f/b.txt", "s")], []),
        ([(".l", "a.txt", "s")], []),
    ],
)
def test_links_to_received_files_become_files_and_others_are_listed(
    tmp_path: Path, links: list[tuple[str, str, str]], files: list[str]
) -> None:
    kinds = {"s": tarfile.SYMTYPE, "h": tarfile.LNKTYPE}
    made = b"".join(entry(path, kind=kinds[kind], link=target) for path, target, kind in links)
    # The links come first, one of the files after them: nothing is made of a link before the end.
    sent = entry("f/b.txt", b"b") + (made if links[0][0] != "a.txt" else b"") + entry("a.txt", b"a")
    sent += made if links[0][0] == "a.txt" else b""
    received = receive(sent + END, tmp_path / "in")
    assert contents(tmp_path / "in") == {"a.txt": b"a", "f/b.txt": b"b"} | dict.fromkeys(files, b"a")
    assert received.skipped_count == len(links) - len(files)
    assert set(received.files) == {"a.txt", "f/b.txt", *files}


def symlink(path: str, target: str) -> bytes:
    return entry(path, kind=tarfile.SYMTYPE, link=target)


DOCS = {"1.2/index.html": b"new", "1.2/a/b.txt": b"b", "1.1/index.html": b"old"}


@pytest.mark.parametrize(
    ("links", "made"),
    [
        ({"latest": "1.2"}, {"latest/index.html": b"new", "latest/a/b.txt": b"b"}),
        ({"latest": "./1.2/"}, {"latest/index.html": b"new", "latest/a/b.txt": b"b"}),
        ({"latest": "/site/1.2"}, {"latest/index.html": b"new", "latest/a/b.txt": b"b"}),
        ({"1.1/next": "../1.2/a"}, {"1.1/next/b.txt": b"b"}),
        ({"stable": "latest", "latest": "1.1"}, {"stable/index.html": b"old", "latest/index.html": b"old"}),
        ({"latest": "1.2", "home.html": "latest/index.html"},
         {"latest/index.html": b"new", "latest/a/b.txt": b"b", "home.html": b"new"}),
        # A way leads on from where a link leads, and not from its name.
        ({"a": "1.2/a", "b": "a/../index.html"}, {"a/b.txt": b"b", "b": b"new"}),
        # A link within the folder that another one names.
        ({"1.2/old": "../1.1", "latest": "1.2"},
         {"1.2/old/index.html": b"old", "latest/index.html": b"new", "latest/a/b.txt": b"b",
          "latest/old/index.html": b"old"}),
        ({"1.2/home": "a/b.txt", "latest": "1.2"},
         {"1.2/home": b"b", "latest/index.html": b"new", "latest/a/b.txt": b"b", "latest/home": b"b"}),
        ({"latest": "empty"}, {}),
        ({"over": "empty/../1.1"}, {"over/index.html": b"old"}),
    ],
)  # fmt: skip
def test_a_link_to_a_directory_inside_is_published(
    tmp_path: Path, links: dict[str, str], made: dict[str, bytes]
) -> None:
    sent = b"".join(symlink(path, target) for path, target in links.items())
    sent += entry("empty", kind=tarfile.DIRTYPE) + archive_of(DOCS)
    received = receive(sent, tmp_path / "in", exported="/site/")
    assert contents(tmp_path / "in") == DOCS | made
    assert set(received.files) == {*DOCS, *made}
    assert received.bytes == sum(map(len, (DOCS | made).values()))
    assert received.skipped == []


@pytest.mark.parametrize(
    ("links", "made", "left_out"),
    [
        ({"all": "."}, [], {"all": "link to itself"}),
        ({"all": "/site"}, [], {"all": "link to itself"}),
        ({"1.2/up": ".."}, [], {"1.2/up": "link to itself"}),
        ({"1.2/self": "../1.2"}, [], {"1.2/self": "link to itself"}),
        ({"1.2/up": "..", "latest": "1.2"}, ["latest/index.html", "latest/a/b.txt"],
         {"1.2/up": "link to itself", "latest/up": "link to itself"}),
        ({"1.1/x": "../1.2/a", "1.2/a/y": "../../1.1"}, ["1.1/x/b.txt", "1.2/a/y/index.html"],
         {"1.1/x/y": "link to itself", "1.2/a/y/x": "link to itself"}),
        ({"1": "2", "2": "1"}, [], {"1": "link to itself", "2": "link to itself"}),
        ({"1": "2/a", "2": "1/a"}, [], {"1": "link to itself", "2": "link to itself"}),
        ({"out": ".."}, [], {"out": "link out of the folder"}),
        ({"out": "/sites/1.2"}, [], {"out": "link out of the folder"}),
        ({"out": "/site/../etc"}, [], {"out": "link out of the folder"}),
        ({"a": "1.2", "out": "a/../../in/1.2"}, ["a/index.html", "a/a/b.txt"], {"out": "link out of the folder"}),
        ({"1.2/out": "../..", "latest": "1.2"}, ["latest/index.html", "latest/a/b.txt"],
         {"1.2/out": "link out of the folder", "latest/out": "link out of the folder"}),
        ({"gone": "1.3"}, [], {"gone": "link to a name that was not received"}),
        ({"gone": "1.2/index.html/x"}, [], {"gone": "link to a name that was not received"}),
        ({"1.2": "1.1"}, [], {"1.2": "duplicate name"}),
        ({"l": "1.2", "l/x": "1.1"}, [], {"l": "duplicate name", "l/x": "duplicate name"}),
    ],
)  # fmt: skip
def test_a_link_to_a_directory_outside_or_around_it_is_left_out(
    tmp_path: Path, links: dict[str, str], made: list[str], left_out: dict[str, str]
) -> None:
    sent = b"".join(symlink(path, target) for path, target in links.items())
    # An endless tree would not end.
    received = receive(sent + archive_of(DOCS), tmp_path / "in", exported="/site")
    assert set(contents(tmp_path / "in")) == set(received.files) == {*DOCS, *made}
    assert {skipped.path: skipped.reason for skipped in received.skipped} == left_out


def test_a_long_chain_of_links_leads_to_its_end(tmp_path: Path) -> None:
    sent = b"".join(symlink(f"{number}", f"{number + 1}") for number in range(500)) + symlink("500", "1.1")
    receive(sent + archive_of(DOCS), tmp_path / "in")
    assert contents(tmp_path / "in")["0/index.html"] == b"old"


@pytest.mark.parametrize(
    ("links", "limit"),
    [
        # Each level has twice what the one below it has.
        (b"".join(symlink(f"{level}/{side}", f"../{level + 1}") for level in range(40) for side in "ab"), "files"),
        (symlink("x", "f") + symlink("y", "f"), "files"),
        (symlink("l", "big"), "bytes"),
        (long_name(b"/".join([b"a" * 192] * 5)) + symlink("short", "../../../../g"), "path_bytes"),
    ],
)
def test_what_links_become_counts_as_what_is_sent(tmp_path: Path, links: bytes, limit: str) -> None:
    files = {"40/index.html": b"", "big/film": b"x" * 600, "f/1": b"", "f/2": b"", f"g/{'h' * 60}": b""}
    with pytest.raises(ExportLimit) as raised:
        receive(links + archive_of(files), tmp_path / "in", ExportLimits(bytes=1000, files=7))
    assert raised.value.limit_name == limit


def test_folders_of_links_that_lead_to_nothing_end_at_the_limit(tmp_path: Path) -> None:
    """2 to the power of 40 of them cost time, though not one becomes a file."""
    links = b"".join(symlink(f"{level}/{side}", f"../{level + 1}") for level in range(40) for side in "ab")
    with pytest.raises(ExportLimit):
        receive(links + entry("40", kind=tarfile.DIRTYPE) + END, tmp_path / "in", ExportLimits(files=500))
    assert list((tmp_path / "in").iterdir()) == []
