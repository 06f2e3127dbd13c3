"""Exports as honest guests send them."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from common.content_times import content_time_ns
from pages.releases.errors import ExportDamaged, ExportLimit
from pages.releases.limits import ExportLimits
from tests.pages.archives import END, archive_of, contents, entry, header, long_name, padded, pax, receive, record

SITE = {
    "index.html": b"<h1>Home</h1>",
    "assets/app-B1xYz9aQ.js": b"let a = 1;" * 1000,
    "a b/\u00fcn\u00efcode [x] {y} %2e ?#.txt": b"text",
    f"deep/{'/'.join(f'folder{n:03d}' for n in range(60))}/end.txt": b"end",
    f"{'n' * 200}.txt": b"long",
    ".well-known/security.txt": b"Contact: x",
    "empty.txt": b"",
    "large.bin": os.urandom(3 << 20),
}


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_arrive_as_they_were_sent(tmp_path: Path, form: int) -> None:
    received = receive(archive_of(SITE, form), tmp_path / "in")
    assert contents(tmp_path / "in") == SITE
    assert {path: (file.digest, file.size) for path, file in received.files.items()} == {
        path: (sha256(data).hexdigest(), len(data)) for path, data in SITE.items()
    }
    assert received.bytes == sum(map(len, SITE.values()))
    assert (received.skipped, received.skipped_count) == ([], 0)


@pytest.mark.parametrize("program", [["tar"], ["busybox", "tar"]])
def test_archives_of_real_programs_are_read(tmp_path: Path, program: list[str]) -> None:
    if not shutil.which(program[0]):
        pytest.skip(f"{program[0]} is not installed")
    for name, data in SITE.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "site" / "link.html").symlink_to("index.html")
    os.link(tmp_path / "site" / "index.html", tmp_path / "site" / "second.html")
    sent = subprocess.run([*program, "-cf", "-", "-C", tmp_path / "site", "."], capture_output=True, check=True).stdout
    received = receive(sent, tmp_path / "in")
    assert contents(tmp_path / "in") == SITE | dict.fromkeys(("link.html", "second.html"), SITE["index.html"])
    assert received.skipped_count == 0


@pytest.mark.parametrize("size", [1, 7, 512, 100_000])
def test_pieces_of_any_size_are_read(tmp_path: Path, size: int) -> None:
    sent = archive_of({"a.txt": b"a" * 700, "b/c.txt": b"c" * 5000})
    pieces = (sent[place : place + size] for place in range(0, len(sent), size))
    receive(with_empty_pieces(pieces), tmp_path / "in")
    assert contents(tmp_path / "in") == {"a.txt": b"a" * 700, "b/c.txt": b"c" * 5000}


def with_empty_pieces(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield b""
        yield piece


def test_modes_owners_and_times_are_not_the_archives(tmp_path: Path) -> None:
    receive(archive_of(SITE), tmp_path / "in")
    for path, data in SITE.items():
        found = (tmp_path / "in" / path).stat()
        assert stat.S_IMODE(found.st_mode) == 0o644
        assert (found.st_uid, found.st_gid) == (os.getuid(), os.getgid())
        assert found.st_mtime_ns == content_time_ns(sha256(data).hexdigest())


def test_times_differ_where_contents_of_one_size_do(tmp_path: Path) -> None:
    receive(archive_of({"a": b"one", "b": b"two", "c": b"one"}), tmp_path / "in")
    times = {name: (tmp_path / "in" / name).stat().st_mtime_ns for name in "abc"}
    assert times["a"] == times["c"] != times["b"]


def test_a_known_content_becomes_a_link_to_it(tmp_path: Path) -> None:
    old = receive(archive_of(SITE), tmp_path / "old")
    known = {file.digest: str(tmp_path / "old" / path) for path, file in old.files.items()}
    changed = SITE | {"index.html": b"changed"}
    receive(archive_of(changed), tmp_path / "new", known=known)
    assert contents(tmp_path / "new") == changed
    for path in SITE:
        same = (tmp_path / "old" / path).samefile(tmp_path / "new" / path)
        assert same == (path != "index.html"), path


def test_a_known_content_that_is_gone_is_written(tmp_path: Path) -> None:
    digest = sha256(b"text").hexdigest()
    receive(archive_of({"a": b"text"}), tmp_path / "in", known={digest: str(tmp_path / "gone")})
    assert contents(tmp_path / "in") == {"a": b"text"}


SMALL = ExportLimits(bytes=10_000, files=5, file_bytes=4_000, path_bytes=50)


@pytest.mark.parametrize(
    ("files", "limit", "path"),
    [
        ({"a.txt": b"x" * 4001}, "file_bytes", "a.txt"),
        ({f"{n}.txt": b"x" * 3000 for n in range(5)}, "bytes", "3.txt"),
        ({f"{n}.txt": b"" for n in range(6)}, "files", "5.txt"),
        ({"f/" + "n" * 49: b""}, "path_bytes", "f/" + "n" * 49),
        ({"n" * 150: b""}, "path_bytes", "n" * 48),
        ({"a/b/c/d/e/f.txt": b"", "k/l.txt": b""}, "files", "k"),
    ],
)
def test_the_first_limit_passed_is_named_with_its_path(
    tmp_path: Path, files: dict[str, bytes], limit: str, path: str
) -> None:
    with pytest.raises(ExportLimit) as raised:
        receive(archive_of(files), tmp_path / "in", SMALL)
    assert (raised.value.limit_name, raised.value.path) == (limit, path)


def test_what_is_exactly_at_the_limits_is_received(tmp_path: Path) -> None:
    files = {"f/" * 3 + "n" * 44: b"x" * 4000, "b": b"x" * 4000, "c": b"x" * 2000, "d": b"", "e": b""}
    receive(archive_of(files), tmp_path / "in", SMALL)
    assert contents(tmp_path / "in") == files


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("/a", None), ("../a", None), ("a/../b", None), ("./../a", None), ("a//b", None), ("a/./b", None), (".", None),
        ("", None),
        (".env", None), ("a/.git/config", None), (".well-known", ".well-known"), (".well-known/a", ".well-known/a"),
        (".well-known/.a", None), ("a/.well-known/b", None), ("a\\b", None), ("a\nb", None), ("a\x7fb", None),
        ("a\x85b", None),
        ("n" * 256, None), ("n" * 255, "n" * 255), ("a..b", "a..b"), ("...", None), ("./a", "a"), (".//a", "a"),
        ("a%2f..%2fb", "a%2f..%2fb"), ("C:", "C:"), ("-rf", "-rf"), ("\udcff", None), ("~", "~"),
    ],
)  # fmt: skip
def test_names(tmp_path: Path, name: str, kept: str | None) -> None:
    raw = name.encode("utf-8", "surrogateescape")
    # In both forms of long names, too: those have no NUL that ends them early.
    for number, start in enumerate((long_name(raw), pax(record("path", raw)))):
        received = receive(start + entry("short", b"x") + END, tmp_path / str(number))
        expected = {} if kept is None else {kept: b"x"}
        assert contents(tmp_path / str(number)) == expected
        assert received.skipped_count == int(kept is None and name != "")


def test_a_nul_in_a_name_is_left_out(tmp_path: Path) -> None:
    receive(pax(record("path", b"a\0b")) + entry("short", b"x") + END, tmp_path / "in")
    assert contents(tmp_path / "in") == {}


def test_what_is_neither_file_nor_folder_is_listed(tmp_path: Path) -> None:
    kinds = {b"3": "device", b"4": "device", b"6": "named pipe", b"S": "sparse file", b"Z": "unknown kind of entry"}
    sent = b"".join(entry(f"x{number}", kind=kind) for number, kind in enumerate(kinds))
    received = receive(sent + entry("a", b"a") + END, tmp_path / "in")
    assert [skipped.reason for skipped in received.skipped] == list(kinds.values())
    assert contents(tmp_path / "in") == {"a": b"a"}


def test_the_first_of_equal_names_stays(tmp_path: Path) -> None:
    sent = entry("a", b"1") + entry("./a", b"2") + entry("a/b", b"3") + entry("d/e", b"4") + entry("d", b"5")
    sent += (
        entry("d/e", kind=tarfile.SYMTYPE, link="../a") + entry("l", kind=tarfile.SYMTYPE, link="a") + entry("l", b"6")
    )
    received = receive(sent + END, tmp_path / "in")
    assert contents(tmp_path / "in") == {"a": b"1", "d/e": b"4", "l": b"1"}
    assert [(skipped.path, skipped.reason) for skipped in received.skipped] == [
        (name, "duplicate name") for name in ("a", "a/b", "d", "d/e", "l")
    ]


@pytest.mark.parametrize("name", ["d/.x", "./d/.x", ".//d/.x", "././d/.x", "d/.x/", "./d/.x/"])
def test_what_is_left_out_is_named_by_one_form_of_its_path(tmp_path: Path, name: str) -> None:
    received = receive(entry(name) + END, tmp_path / "file")
    assert [(skipped.path, skipped.reason) for skipped in received.skipped] == [("d/.x", "dotfile")]
    received = receive(entry(name, kind=tarfile.DIRTYPE) + END, tmp_path / "folder")
    assert [skipped.path for skipped in received.skipped] == ["d/.x"]
    received = receive(entry(name.replace(".x", "x"), kind=tarfile.SYMTYPE, link="gone") + END, tmp_path / "link")
    assert [skipped.path for skipped in received.skipped] == ["d/x"]


def test_a_hundred_are_listed_and_all_counted(tmp_path: Path) -> None:
    received = receive(b"".join(entry(f".{n}") for n in range(250)) + END, tmp_path / "in")
    assert (len(received.skipped), received.skipped_count) == (100, 250)


@pytest.mark.parametrize("cut", [0, 1, 511, 512, 600, 1024, 1536])
def test_a_stream_that_ends_early_is_damaged(tmp_path: Path, cut: int) -> None:
    sent = entry("a", b"x" * 700) + header("b", 0)
    with pytest.raises(ExportDamaged):
        receive(sent[:cut], tmp_path / "in")


def test_what_the_stream_raises_passes_through(tmp_path: Path) -> None:
    def lost() -> Iterator[bytes]:
        yield header("a", 1000)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        receive(lost(), tmp_path / "in")


def test_extended_headers_are_of_the_next_entry_alone(tmp_path: Path) -> None:
    sent = pax(record("path", b"one") + record("size", b"3")) + header("x", 0) + padded(b"abc")
    sent += long_name(b"two") + entry("y", b"2") + entry("three", b"3")
    receive(sent + END, tmp_path / "in")
    assert contents(tmp_path / "in") == {"one": b"abc", "two": b"2", "three": b"3"}
