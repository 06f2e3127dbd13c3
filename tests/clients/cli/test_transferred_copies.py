"""Folders by transfers of the runtime, whose archives a guest makes up, and whose connections break off."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
import zlib
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from microvm import ConnectionFailed
from microvm.cli.packing import FolderPacker
from microvm.cli.transferring import GzipSource
from tests.clients.cli.archives import FOLDER, Entry, archive_of, sent
from tests.clients.cli.runner import Ws
from tests.clients.cli.test_commands import answer, workspace
from tests.clients.cli.test_copies import HOSTILE, file, folder, link
from tests.clients.cli.test_tasks import opens
from tests.clients.cli.trees import tree_of
from tests.clients.scripted_server import Script, ScriptedRequest, Step

IS_FOLDER = answer(200, {"type": "directory"})
GOOD = file("srv/good")


def transferred(content: bytes, *, cut: bool = False) -> Step:
    """The workspace sends this as its archive; with `cut` the connection is lost before the end."""

    def step(request: ScriptedRequest) -> None:
        request.rfile.read(int(request.headers["Content-Length"]))
        length = len(content) + 1000 if cut else len(content)
        request.answer(200, {"Content-Type": "application/gzip", "Content-Length": str(length)}, content)

    return step


def packed(*entries: Entry) -> bytes:
    return gzip.compress(archive_of(*entries))


@pytest.fixture(autouse=True)
def runtime(server: Script, ws: Ws) -> None:
    """The runtime of the workspace is on."""
    server.by_path["/runtime-api-access/token"] = [opens(server)]


def copied(server: Script, ws: Ws, target: Path, content: bytes) -> Any:
    server.steps = [FOLDER, IS_FOLDER, transferred(content)]
    return json.loads(ws.run("cp", "-r", "box:/srv", target, "--json").stdout)


def test_a_folder_comes_as_one_archive_below_its_own_path(server: Script, ws: Ws, tmp_path: Path) -> None:
    entries = [
        folder("srv", 0o750), folder("srv/in"), file("srv/in/a", b"aa", 0o600), link("srv/in/up", "../b"),
        file("srv/b"), ("srv/same", "srv/in/a", "hard", 0o600), file("srv/./srv/c"),
    ]  # fmt: skip
    found = copied(server, ws, tmp_path / "to", packed(*entries))
    to = tmp_path / "to"
    assert found["files"] == 4
    assert (to / "same").samefile(to / "in/a")
    assert ((to / "b").read_text(), str((to / "in/up").readlink())) == ("new", "../b")
    assert to.stat().st_mode & 0o777 == 0o750
    assert [path for method, path, _ in server.seen if method == "POST"] == ["/r/files/transfer/download"]


@pytest.mark.parametrize("prefix", ["srv/", ""], ids=["below", "beside"])
@pytest.mark.parametrize("entry", HOSTILE, ids=[f"{entry[2]} {entry[0]}" for entry in HOSTILE])
def test_what_a_guest_makes_up_stays_within_the_target(
    server: Script, ws: Ws, tmp_path: Path, entry: Entry, prefix: str
) -> None:
    (tmp_path / "outside").write_text("mine")
    found = copied(server, ws, tmp_path / "to", packed((prefix + entry[0], *entry[1:]), GOOD))
    assert (found["files"], len(found["skipped"])) == (1, 1)
    assert (tmp_path / "to/good").read_text() == "new"
    assert {path.name for path in tmp_path.iterdir()} <= {"to", "outside", "config"}
    assert (tmp_path / "outside").read_text() == "mine"
    assert not [path for path in (tmp_path / "to").rglob("*") if path.is_symlink()]


@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b"no tar" * 500), gzip.compress(b"\xff" * 5000), packed(GOOD)[:-8] + b"\xff" * 8],
    ids=["text", "no tar", "bytes", "wrong sum"],
)
def test_what_is_no_archive_is_one_sentence(server: Script, ws: Ws, tmp_path: Path, content: bytes) -> None:
    server.steps = [FOLDER, IS_FOLDER, transferred(content)]
    assert "cannot be read" in ws.fails(1, "cp", "-r", "box:/srv", tmp_path / "to")


def test_an_archive_without_end_is_given_up(server: Script, ws: Ws, tmp_path: Path) -> None:
    server.steps = [FOLDER, IS_FOLDER, transferred(gzip.compress(archive_of(GOOD) + bytes(30 << 20)))]
    assert "does not end" in ws.fails(1, "cp", "-r", "box:/srv", tmp_path / "to")
    assert (tmp_path / "to/good").read_text() == "new"


@pytest.mark.parametrize("cut", [True, False], ids=["lost", "short"])
def test_after_a_broken_transfer_the_program_of_the_workspace_copies(
    server: Script, ws: Ws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    monkeypatch.setattr("microvm.cli.copying.WAITS", (0.0,))
    content = packed(file("srv/a", os.urandom(90_000)), GOOD)[:60_000]
    there = answer(200, {"workspace": workspace()})
    server.steps = [
        FOLDER, IS_FOLDER, transferred(content, cut=cut), there, sent(archive_of(file("./a", b"a"), file("./b", b"b"))),
    ]  # fmt: skip
    found = ws.run("cp", "-r", "box:/srv", tmp_path / "to")
    assert (found.exit_code, found.stdout) == (0, "Copied 2 files, 2 B.\n")
    assert tree_of(tmp_path / "to") == {"a": (b"a", 0o644), "b": (b"b", 0o644)}


@pytest.mark.parametrize("off", [answer(409, {"code": "runtime_disabled"}), answer(403, {"code": "forbidden"})])
def test_without_a_runtime_the_program_of_the_workspace_copies(
    server: Script, ws: Ws, tmp_path: Path, off: Step
) -> None:
    server.by_path["/runtime-api-access/token"] = [off]
    server.steps = [FOLDER, sent(archive_of(file("./a")))]
    assert "1 file" in ws.output("cp", "-r", "box:/srv", tmp_path / "to")


def test_links_that_lead_out_have_an_archive_of_their_own(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "in").mkdir(parents=True)
    targets = {"near": "x", "up": "../x", "copy": "../../copy", "out": "../../../x", "far": "/x", "odd": "a/../../../x"}
    for name, target in targets.items():
        (tree / "in" / name).symlink_to(target)
    packer = FolderPacker(tree, lambda name, size: lambda done, total: None, sets_apart=True)
    (tmp_path / "all.tar.gz").write_bytes(GzipSource(packer.parts(), Event()).read())
    (tmp_path / "apart.tar").write_bytes(b"".join(packer.apart_parts()))
    with tarfile.open(tmp_path / "all.tar.gz") as all_of_it, tarfile.open(tmp_path / "apart.tar") as apart:
        assert all_of_it.getnames() == ["copy", "copy/in", "copy/in/copy", "copy/in/near", "copy/in/up"]
        assert apart.getnames() == ["copy/in/far", "copy/in/odd", "copy/in/out"]
    assert packer.files == len(targets)


def test_a_source_is_packed_while_it_is_read_and_can_be_given_up() -> None:
    is_over = Event()
    block = bytes(range(256)) * 1024
    source = GzipSource(iter([block] * 100), is_over)
    start = source.read(100)
    is_over.set()
    with pytest.raises(ConnectionFailed):
        source.read(1 << 20)
    whole = GzipSource(iter([block] * 100), Event()).read()
    assert whole.startswith(start[:10])
    assert zlib.decompress(whole, wbits=31) == block * 100
