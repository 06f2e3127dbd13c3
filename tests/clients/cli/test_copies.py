"""Copies onto what is there: links, devices and folders here, and trees that a guest makes up."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from microvm import Microvm
from microvm.cli.copying import MOST_DEPTH
from tests.clients.cli.runner import Ws
from tests.clients.cli.test_hostile import listing, refused
from tests.clients.scripted_server import Script, scripted_server
from tests.clients.test_transfers import CONTENT, file_of


def test_nothing_of_another_kind_is_replaced_in_a_folder(server: Script, ws: Ws, tmp_path: Path) -> None:
    target, outside = tmp_path / "to" / "srv", tmp_path / "outside"
    (target / "folder").mkdir(parents=True)
    (target / "file").write_text("mine")
    outside.write_text("mine")
    os.mkfifo(target / "pipe")
    (target / "link").symlink_to(outside)
    (target / "dangling").symlink_to(tmp_path / "not-there")
    names = [("folder", "file"), ("file", "directory"), ("pipe", "file"), ("link", "file"), ("dangling", "file")]
    server.steps = [listing(), listing(*names, ("new", "file")), file_of(b"new", "a")]
    found = ws.run("cp", "-r", "box:/srv", tmp_path / "to", "--json")
    assert found.exit_code == 1
    skipped = json.loads(found.stdout)["skipped"]
    assert [each["path"] for each in skipped] == [f"/srv/{name}" for name, _ in names]
    assert {each["reason"] for each in skipped} == {"something else of this name is here"}
    assert (target / "pipe").is_fifo()
    assert (target / "link").is_symlink()
    assert (target / "dangling").is_symlink()
    assert not (tmp_path / "not-there").exists()
    assert {path.read_text() for path in (target / "file", outside)} == {"mine"}
    assert (target / "new").read_text() == "new"
    assert len(server.seen) == 3


def test_a_copy_to_a_link_replaces_what_it_leads_to(server: Script, ws: Ws, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("old")
    (tmp_path / "link").symlink_to("real/file")
    (tmp_path / "round").symlink_to("round")
    server.steps = [refused("path_invalid"), file_of(b"new", "a")]
    ws.output("cp", "box:/srv/a", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "file").read_text() == "new"
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["file"]
    server.steps = [refused("path_invalid"), file_of(b"new", "a")]
    assert "symbolic link" in ws.fails(1, "cp", "box:/srv/a", tmp_path / "round")
    assert len(server.seen) == 3


def test_who_may_read_a_file_is_who_may_read_its_replacement(server: Script, ws: Ws, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("old")
    (tmp_path / "secret").chmod(0o600)
    server.steps = [refused("path_invalid"), file_of(b"new", "a")]
    before = os.umask(0o022)
    try:
        ws.output("cp", "box:/srv/a", tmp_path / "secret")
    finally:
        os.umask(before)
    assert (tmp_path / "secret").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_a_tree_without_a_bottom_ends(server: Script, ws: Ws, tmp_path: Path) -> None:
    server.steps = [listing(), *[listing(("d", "directory"))] * (MOST_DEPTH + 5)]
    found = ws.run("cp", "-r", "box:/srv", tmp_path / "to", "--json")
    assert found.exit_code == 1
    (skipped,) = json.loads(found.stdout)["skipped"]
    assert "folders in each other" in skipped["reason"]
    assert len(server.seen) == MOST_DEPTH + 2


def test_what_has_no_name_is_one_sentence_and_nothing_is_sent(server: Script, ws: Ws) -> None:
    for words in (["", "box:/x"], ["box:/x", ""], ["-", "box:/srv/"], ["-", "-"], ["box:/a", "box:/b"]):
        assert "Hint: " in ws.fails(2, "cp", *words)
    assert server.seen == []


def test_a_download_that_is_given_up_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    stop = threading.Event()

    def progress(done: int, total: int | None) -> None:
        stop.set()
        raise KeyboardInterrupt

    with (
        scripted_server(file_of(CONTENT, "a")) as script,
        Microvm(script.url, token="t") as client,
        pytest.raises(KeyboardInterrupt),
    ):
        client.files.download("box", "/a", tmp_path / "file", progress=progress)
    assert stop.is_set()
    assert (tmp_path / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
