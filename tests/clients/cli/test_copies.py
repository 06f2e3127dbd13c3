"""Copies onto what is there: links, devices and folders here, and archives that a guest makes up."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from microvm import Microvm
from microvm.cli.unpacking import MOST_DEPTH, leads_out
from tests.clients.cli.archives import FOLDER, NO_FOLDER, Entry, archive_of, sent
from tests.clients.cli.runner import Ws
from tests.clients.cli.test_commands import answer, workspace
from tests.clients.cli.test_hostile import refused
from tests.clients.scripted_server import Script, ScriptedRequest, Step, scripted_server
from tests.clients.test_transfers import CONTENT, file_of


def file(name: str, content: bytes = b"new", mode: int = 0o644) -> Entry:
    return (name, content, "file", mode)


def folder(name: str, mode: int = 0o755) -> Entry:
    return (name, b"", "folder", mode)


def link(name: str, target: str) -> Entry:
    return (name, target, "link", 0o777)


def copied(server: Script, ws: Ws, target: Path, *entries: Entry, said: bytes = b"", code: int = 0) -> Any:
    """What a copy of such a folder prints."""
    server.steps = [FOLDER, sent(archive_of(*entries), said, code)]
    return json.loads(ws.run("cp", "-r", "box:/srv", target, "--json").stdout)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture(autouse=True)
def usual_umask() -> Any:
    before = os.umask(0o022)
    yield
    os.umask(before)


# From a workspace


def test_modes_links_times_and_bytes_of_names_are_kept(server: Script, ws: Ws, tmp_path: Path) -> None:
    entries = [
        folder("./"), folder("./sub", 0o700), file("./sub/secret", b"s", 0o600), file("./run.sh", b"r", 0o755),
        file("./open", b"o", 0o666), link("./sub/up", "../run.sh"), link("./down", "sub/secret"),
        ("./same", "sub/secret", "hard", 0o600), file("./b\udcffd", b"odd"), folder("./closed", 0o555),
        file("./closed/in", b"in"), file("./set", b"x", 0o4755), link("./nowhere", "not-there"),
    ]  # fmt: skip
    found = copied(server, ws, tmp_path / "to", *entries)
    to = tmp_path / "to"
    assert (found["files"], found["bytes"], found["skipped"]) == (10, 9, [])
    modes = {name: mode_of(to / name) for name in ("sub", "sub/secret", "run.sh", "open", "closed", "set")}
    assert modes == {"sub": 0o700, "sub/secret": 0o600, "run.sh": 0o755, "open": 0o644, "closed": 0o555, "set": 0o755}
    assert [str((to / name).readlink()) for name in ("sub/up", "nowhere")] == ["../run.sh", "not-there"]
    assert (to / "same").samefile(to / "sub/secret")
    assert (to / os.fsdecode(b"b\xffd")).read_text() == "odd"
    assert (to / "run.sh").stat().st_mtime == 1_700_000_000
    assert (to / "closed/in").read_text() == "in"


def test_nothing_of_another_kind_is_replaced_in_a_folder(server: Script, ws: Ws, tmp_path: Path) -> None:
    target, outside = tmp_path / "srv", tmp_path / "outside"
    (target / "folder").mkdir(parents=True)
    (target / "file").write_text("mine")
    outside.mkdir()
    os.mkfifo(target / "pipe")
    (target / "link").symlink_to(outside)
    (target / "dangling").symlink_to(tmp_path / "not-there")
    entries = [
        file("./folder"), folder("./file"), file("./pipe"), file("./link/in"), file("./dangling"), file("./link"),
        link("./file", "x"), file("./new"),
    ]  # fmt: skip
    found = copied(server, ws, tmp_path, *entries)
    assert [each["path"] for each in found["skipped"]] == [f"/srv/{entry[0][2:]}" for entry in entries[:-1]]
    assert {each["reason"] for each in found["skipped"]} == {"something else of this name is here"}
    assert (target / "pipe").is_fifo()
    assert (target / "link").is_symlink()
    assert list(outside.iterdir()) == []
    assert not (tmp_path / "not-there").exists()
    assert ((target / "file").read_text(), (target / "new").read_text()) == ("mine", "new")


HOSTILE = [
    file("../escaped"), file("/tmp/escaped"), file("a/../../escaped"), file(".."), folder("../escaped"), file("a//b"),
    link("out", "/etc"), link("up", ".."), link("s/deep", "../../x"), ("hard", "../outside", "hard", 0o644),
    ("hard2", "/etc/passwd", "hard", 0o644), ("pipe", b"", "pipe", 0o644), ("device", b"", "device", 0o666),
    link("round", "s/back/../../x"), link("slashes/////", "../../../../x"), link("./one/", "../outside"),
    link("s/deep///", "../../outside"),
]  # fmt: skip


@pytest.mark.parametrize("entry", HOSTILE, ids=[f"{entry[2]} {entry[0]}" for entry in HOSTILE])
def test_what_a_guest_makes_up_stays_within_the_target_and_is_named(
    server: Script, ws: Ws, tmp_path: Path, entry: Entry
) -> None:
    (tmp_path / "outside").write_text("mine")
    found = copied(server, ws, tmp_path / "to", entry, file("good"))
    assert (found["files"], len(found["skipped"])) == (1, 1)
    assert (tmp_path / "to/good").read_text() == "new"
    assert {path.name for path in tmp_path.iterdir()} <= {"to", "outside", "config"}
    assert (tmp_path / "outside").read_text() == "mine"
    assert [
        path for path in (tmp_path / "to").rglob("*") if path.is_symlink() or not (path.is_dir() or path.is_file())
    ] == []


def test_a_link_that_an_archive_made_is_no_way_out(server: Script, ws: Ws, tmp_path: Path) -> None:
    entries = [folder("real"), link("way", "real"), file("way/in"), link("real/x", ".."), file("real/x/y"), file("way")]
    found = copied(server, ws, tmp_path / "to", *entries)
    assert [each["path"] for each in found["skipped"]] == ["/srv/way/in", "/srv/real/x/y", "/srv/way"]
    assert sorted(path.name for path in (tmp_path / "to").rglob("*")) == ["real", "way", "x"]


@pytest.mark.parametrize(
    ("depth", "target", "is_out"),
    [
        (0, "b", False), (0, "b/c", False), (1, "../b", False), (1, "..", False), (0, ".", False),
        (0, "..", True), (1, "../../b", True), (0, "b/../../c", True), (1, "x/..", True), (0, "/b", True),
        (0, "", True), (1, "./../..", True),
    ],
)  # fmt: skip
def test_a_link_leads_out_where_it_may(depth: int, target: str, is_out: bool) -> None:
    assert leads_out(depth, target) is is_out


def test_a_tree_without_a_bottom_ends(server: Script, ws: Ws, tmp_path: Path) -> None:
    found = copied(server, ws, tmp_path / "to", file("/".join(["d"] * MOST_DEPTH)), file("/".join(["d"] * 2000)))
    assert found["files"] == 1
    assert [each["reason"] for each in found["skipped"]] == [f"more than {MOST_DEPTH} folders in each other"]


LONG = b"".join(
    archive_of(("x", b"y" * 100_000, "file", 0o644), type=kind) for kind in (b"L", b"x", b"S")
)  # a name, further headers, a sparse file


@pytest.mark.parametrize(
    "content",
    [
        b"no archive" * 100, archive_of(file("a", b"x" * 5000))[:3000], LONG, archive_of(file("x"), type=b"x"),
        archive_of(file("x"), type=b"S"), archive_of(*[file("y" * 90, b"z")] * 3000, type=b"L"),
    ],
    ids=["text", "cut", "long", "pax", "sparse", "names of names"],
)  # fmt: skip
def test_what_is_no_archive_is_one_sentence(server: Script, ws: Ws, tmp_path: Path, content: bytes) -> None:
    server.steps = [FOLDER, sent(content)]
    assert "cannot be read" in ws.fails(1, "cp", "-r", "box:/srv", tmp_path / "to")
    assert not any((tmp_path / "to").iterdir())


def test_what_the_workspace_could_not_read_is_named(server: Script, ws: Ws, tmp_path: Path) -> None:
    found = copied(server, ws, tmp_path / "to", file("a"), said=b"tar: ./b: Permission denied\n", code=1)
    assert found["skipped"] == [{"path": "/srv/b", "reason": "Permission denied"}]
    server.steps = [FOLDER, sent(b"", b"sh: killed\n", 137)]
    assert "killed" in ws.fails(1, "cp", "-r", "box:/srv", tmp_path / "to")


def test_a_folder_whose_stream_breaks_off_begins_again(
    server: Script, ws: Ws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("microvm.cli.copying.WAITS", (0.0, 0.0))
    whole = archive_of(folder("./"), folder("in", 0o500), file("in/a", b"x" * 90_000), file("b"))

    there = answer(200, {"workspace": workspace()})
    server.steps = [FOLDER, sent(whole[:60_000], cut=True), there, sent(whole)]
    found = ws.run("cp", "-r", "box:/srv", tmp_path / "to")
    assert (found.exit_code, found.stdout) == (0, "Copied 2 files, 87.9 KiB.\n")
    assert found.stderr.count("begins again") == 1
    assert mode_of(tmp_path / "to/in") == 0o500
    assert [path.name for path in tmp_path.rglob("*.part")] == []
    server.steps = [FOLDER, *[step for _ in range(3) for step in (sent(whole[:60_000], cut=True), there)]]
    assert "lost" in ws.fails(7, "cp", "-r", "box:/srv", tmp_path / "again")


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


def with_mode(step: Step, mode: str) -> Step:
    """The same answer, with the mode of the file in the workspace."""

    def step_with_mode(request: ScriptedRequest) -> None:
        answer = request.answer
        request.answer = lambda status, headers, body=b"": answer(status, {**headers, "X-File-Mode": mode}, body)  # type: ignore[method-assign]
        step(request)

    return step_with_mode


@pytest.mark.parametrize(
    ("former", "source", "made"),
    [(None, "0600", 0o600), (None, "0755", 0o755), (None, "0666", 0o644), (None, "4777", 0o755), (0o600, "0644", 0o600),
     (0o644, "0600", 0o600), (0o755, "0644", 0o644)],
)  # fmt: skip
def test_a_copy_is_never_wider_than_its_source_nor_than_what_it_replaces(
    server: Script, ws: Ws, tmp_path: Path, former: int | None, source: str, made: int
) -> None:
    if former is not None:
        (tmp_path / "a").write_text("old")
        (tmp_path / "a").chmod(former)
    server.steps = [refused("path_invalid"), with_mode(file_of(b"new", "a"), source)]
    ws.output("cp", "box:/srv/a", tmp_path / "a")
    assert ((tmp_path / "a").read_text(), mode_of(tmp_path / "a")) == ("new", made)


# To a workspace


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_a_file_is_sent_with_its_mode(server: Script, ws: Ws, tmp_path: Path, mode: int) -> None:

    (tmp_path / "a").write_text("x")
    (tmp_path / "a").chmod(mode)
    server.steps = [NO_FOLDER, answer(200, {"path": "/srv/a", "size": 1}), answer(200, {"path": "/srv/a", "size": 1})]
    ws.output("cp", tmp_path / "a", "box:/srv/a")
    ws.output("cp", "-", "box:/srv/b", stdin=b"x")
    assert [path.rpartition("&")[2] for _, path, _ in server.seen[1:]] == [f"mode=0{mode:o}", "mode=0644"]


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
