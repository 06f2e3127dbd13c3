"""Folders that `ws cp -r` copies by transfers of the runtime are the same as those that a program copies."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from microvm.sync.runtime_files import RuntimeFiles
from tests.clients.cli.runner import Ws
from tests.clients.cli.trees import tree_of
from tests.threads import wait_until
from tests.vm.client import Api
from tests.vm.instances import TestInstance

ON, OFF = "enable", "disable"


@pytest.fixture
def ws(served: TestInstance, tmp_path: Path) -> Ws:
    made = Ws(tmp_path / "config")
    made.output("login", "--file", served.instance.credentials_file)
    return made


@pytest.fixture
def disk(served: TestInstance, box: str) -> Path:
    return disk_of(served, box)


def disk_of(served: TestInstance, box: str) -> Path:
    return served.state / "machines/directories" / box / "disk"


@pytest.fixture
def transfers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The transfers of this process."""
    seen: list[str] = []
    for name in ("upload", "download_parts"):
        plain = getattr(RuntimeFiles, name)

        def noted(self: Any, *args: Any, _name: str = name, _plain: Any = plain, **named: Any) -> Any:
            seen.append(_name)
            return _plain(self, *args, **named)

        monkeypatch.setattr(RuntimeFiles, name, noted)
    return seen


def switch(client: Api, box: str, way: str) -> None:
    client.call("POST", f"/workspace/{box}/runtime-api-access/{way}")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Links of all kinds, empty folders, modes, times and odd names."""
    root = tmp_path / "tree"
    (root / "in" / "empty").mkdir(parents=True)
    for name, mode in {"secret": 0o600, "run.sh": 0o755, "open": 0o666, "shut": 0o444}.items():
        (root / "in" / name).write_bytes(os.urandom(3000))
        (root / "in" / name).chmod(mode)
    for odd in (b"odd\xff", b"two\nlines", b"-rf", b" ", "é".encode(), b"n" * 255):
        (root / os.fsdecode(odd)).write_text("x")
    for name, to in {"near": "secret", "up": "../-rf", "out": "../../../x", "far": "/etc/passwd", "none": "no"}.items():
        (root / "in" / name).symlink_to(to)
    os.link(root / "in" / "secret", root / "same")
    for number in range(300):
        (root / f"many{number}").write_text(str(number))
    (root / "large").write_bytes(bytes(3_000_000))
    os.utime(root / "large", (1_700_000_000, 1_700_000_000))
    (root / "in").chmod(0o750)
    (root / "in" / "empty").chmod(0o711)
    return root


def test_a_tree_goes_to_a_workspace_the_same_either_way(
    ws: Ws, client: Api, box: str, disk: Path, tree: Path, transfers: list[str]
) -> None:
    said = []
    for way in (OFF, ON):
        switch(client, box, way)
        said.append(ws.json("cp", "-r", tree, f"{box}:/sent/{way}"))
    assert transfers == ["upload"]
    assert said[0] == said[1]
    assert said[0]["skipped"] == []
    assert tree_of(disk / "sent" / ON) == tree_of(disk / "sent" / OFF) == tree_of(tree)
    for way in (ON, OFF):
        assert (disk / "sent" / way / "large").stat().st_mtime == 1_700_000_000
        assert (disk / "sent" / way / "same").samefile(disk / "sent" / way / "in" / "secret")
    ws.output("cp", "-r", tree / "in", f"{box}:/sent/{ON}/")  # into a folder that is there
    assert tree_of(disk / "sent" / ON) == tree_of(tree)
    assert sorted(path.name for path in (disk / "sent").iterdir()) == sorted([ON, OFF])


def test_a_tree_comes_from_a_workspace_the_same_either_way(
    ws: Ws, client: Api, box: str, disk: Path, tree: Path, tmp_path: Path, transfers: list[str]
) -> None:
    switch(client, box, ON)
    ws.output("cp", "-r", tree, f"{box}:/there")
    os.mkfifo(disk / "there" / "pipe")
    transfers.clear()
    said = []
    for way in (OFF, ON):
        switch(client, box, way)
        found = ws.run("cp", "-r", "--json", f"{box}:/there", tmp_path / way)
        assert found.exit_code == 1, found.output
        said.append(sorted(line for line in found.stderr.splitlines() if "left out" in line))
    assert transfers == ["download_parts"]
    assert said[0] == said[1]
    assert [line.split()[1] for line in said[0]] == ["/there/in/far", "/there/in/out", "/there/pipe"]
    assert tree_of(tmp_path / ON) == tree_of(tmp_path / OFF)
    assert (tmp_path / ON / "large").stat().st_mtime == 1_700_000_000


def test_a_folder_behind_a_link_and_one_of_odd_spelling_come_too(
    ws: Ws, client: Api, box: str, disk: Path, tmp_path: Path
) -> None:
    switch(client, box, ON)
    (disk / "real" / "deep").mkdir(parents=True)
    (disk / "real" / "deep" / "file").write_text("x")
    (disk / "behind").symlink_to("real")
    for source in ("/behind", "/real//", "/./real", "/real/deep/..", "/behind/deep/.."):
        target = tmp_path / source.replace("/", "_")
        ws.output("cp", "-r", f"{box}:{source}", target)
        assert (target / "deep" / "file").read_text() == "x", source


def test_a_transfer_that_is_given_up_leaves_nothing(ws: Ws, served: TestInstance, client: Api, tmp_path: Path) -> None:
    box = client.create("localhost/tiny:1", disk_size_mb=2048)["id"]
    disk = disk_of(served, box)
    switch(client, box, ON)
    (tmp_path / "tree").mkdir()
    with (tmp_path / "tree" / "large").open("wb") as large:
        for _ in range(200):
            large.write(os.urandom(1 << 20))
    (disk / "given-up").mkdir(exist_ok=True)
    for how, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        process = ws.process("cp", "-r", tmp_path / "tree", f"{box}:/given-up/")
        wait_until(lambda: any((disk / "given-up").glob(".ws-*.part/copy/large")), 60)
        process.send_signal(how)
        assert b"Traceback" not in process.communicate(timeout=60)[1]
        assert process.returncode == code
        wait_until(lambda: not any((disk / "given-up").iterdir()), 60)


def test_a_transfer_into_a_file_changes_nothing(ws: Ws, client: Api, box: str, disk: Path, tree: Path) -> None:
    switch(client, box, ON)
    (disk / "taken").write_text("mine")
    assert "something else of this name" in ws.fails(1, "cp", "-r", tree, f"{box}:/taken")
    assert (disk / "taken").read_text() == "mine"
    assert not list(disk.glob(".ws-*"))


def test_a_folder_that_the_disk_has_no_room_for_is_refused_at_once(
    ws: Ws, client: Api, box: str, disk: Path, tmp_path: Path
) -> None:
    switch(client, box, ON)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "large").write_bytes(os.urandom(80 << 20))
    started = time.monotonic()
    assert "larger than what is free" in ws.fails(5, "cp", "-r", tmp_path / "tree", f"{box}:/roomless")
    assert time.monotonic() - started < 12
    assert not list(disk.glob(".ws-*"))
    assert not (disk / "roomless").exists()
