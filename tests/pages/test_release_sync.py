"""What is flushed before a release gets its name: its own files where few are new, whatever others write then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pages.releases import release_sync, system_calls
from pages.releases.compress import CompressLimits
from pages.releases.store import PageStore
from tests.pages.archives import archive_of
from tests.pages.stores import TEXT, release_make

FEW = {"index.html": b"1", "a/b/page.html": TEXT, "a/large.bin": bytes(1 << 21), "_headers": b"/*\n  X-A: b\n"}


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what the kernel was asked to flush, in order."""
    found: list[str] = []
    fsync = os.fsync

    def record(fd: int) -> None:
        found.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(release_sync, "file_system_sync", lambda path: found.append("all"))
    return found


def below_incoming(flushed: list[str]) -> set[str]:
    return {path.partition("/incoming/")[2].partition("/")[2] for path in flushed if "/incoming/" in path}


def test_of_a_small_release_each_file_copy_and_folder_is_flushed(tmp_path: Path, flushed: list[str]) -> None:
    store = PageStore(tmp_path, compress=CompressLimits())
    release_make(store, "pg_1", 1, archive_of(FEW))
    assert "all" not in flushed
    copies = {f"public/a/b/page.html{ending}" for ending in (".br", ".zst", ".gz")}
    files = {"public/index.html", "public/a/b/page.html", "public/a/large.bin", "manifest.json", "rules.json"}
    assert below_incoming(flushed) == copies | files | {"has-headers", "public", "public/a", "public/a/b", ""}


def test_of_a_redeploy_what_has_changed_is_flushed(tmp_path: Path, flushed: list[str]) -> None:
    store = PageStore(tmp_path, compress=CompressLimits())
    many = {f"{number // 50}/{number}.html": TEXT + b"%d" % number for number in range(400)}
    release_make(store, "pg_1", 1, archive_of(many))
    assert flushed.count("all") == 1
    flushed.clear()
    release_make(store, "pg_1", 2, archive_of({**many, "0/0.html": TEXT + b"new", "0/1.bin": b"new"}))
    assert "all" not in flushed
    files = {path for path in below_incoming(flushed) if not path.startswith("public") or "." in path}
    assert files == {
        *("", "manifest.json", "public/0/0.html", "public/0/1.bin"),
        *(f"public/0/0.html{ending}" for ending in (".br", ".zst", ".gz")),
    }


def test_what_cannot_be_flushed_is_no_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    store = PageStore(tmp_path, compress=CompressLimits(seconds=0))
    monkeypatch.setattr(system_calls.os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output"):
        release_make(store, "pg_1", 1, archive_of(FEW))
    assert store.release_numbers("pg_1") == []
