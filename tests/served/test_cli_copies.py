"""`ws cp` through the real servers: folders, modes, links and odd names in both directions."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path

from tests.clients.cli.runner import Ws
from tests.clients.cli.trees import tree_of
from tests.served.test_cli import made, ws
from tests.threads import wait_until

__all__ = ["made", "ws"]  # fixtures


def test_files_go_up_and_down(ws: Ws, made: str, tmp_path: Path) -> None:
    source = tmp_path / "a file"
    source.write_bytes(bytes(range(256)) * 1000)
    assert "1 file, 250 KiB" in ws.output("cp", source, f"{made}:/srv/deep/")
    assert ws.json("cp", f"{made}:/srv/deep/a file", tmp_path / "back")["bytes"] == 256000
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    (tmp_path / "folder").mkdir()
    ws.output("cp", f"{made}:/srv/deep/a file", tmp_path / "folder")
    assert (tmp_path / "folder" / "a file").is_file()
    ws.output("cp", "-", f"{made}:/srv/typed", stdin=b"typed\xff")
    assert ws.run("cp", f"{made}:/srv/typed", "-").stdout_bytes == b"typed\xff"
    assert "does not exist" in ws.fails(4, "cp", tmp_path / "absent", ".:/srv/x")
    ws.fails(4, "cp", ".:/srv/absent", tmp_path / "x")
    assert "-r" in ws.fails(2, "cp", ".:/srv", tmp_path / "x")
    assert "absolute" in ws.fails(2, "cp", "box:relative", tmp_path / "x")
    assert "must be in a workspace" in ws.fails(2, "cp", source, tmp_path / "x")


def test_folders_come_back_as_they_were_and_the_rest_is_named(ws: Ws, made: str, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "inner" / "empty").mkdir(parents=True)
    (tree / "inner" / "secret").write_bytes(os.urandom(700_000))
    (tree / "inner" / "secret").chmod(0o600)
    (tree / "inner").chmod(0o700)
    (tree / "run.sh").write_text("#!/bin/sh\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "inner" / "link").symlink_to("../run.sh")
    (tree / os.fsdecode(b"odd\xff")).write_text("odd")
    (tree / ("long" * 50)).write_text("long")
    os.mkfifo(tree / "pipe")
    sent = json.loads(ws.run("cp", "-r", "--json", tree, ".:/srv/").stdout)
    assert sent["skipped"] == [{"path": str(tree / "pipe"), "reason": "no regular file, folder or link"}]
    (tree / "pipe").unlink()
    assert sent["files"] == len([path for path in tree.rglob("*") if path.is_symlink() or path.is_file()])
    found = ws.json("cp", "-r", ".:/srv/tree", tmp_path / "back")
    assert (found["files"], found["bytes"], found["skipped"]) == (sent["files"], sent["bytes"], [])
    assert tree_of(tmp_path / "back") == tree_of(tree)
    assert ws.output("exec", ".", "sh", "-c", "cd srv && ls -A").split() == ["tree"]


def test_a_folder_that_is_there_is_filled_up(ws: Ws, made: str, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "one").write_text("new")
    ws.output(
        "exec", ".", "sh", "-c", "mkdir -p srv/tree; echo old >srv/tree/one; echo kept >srv/tree/two; echo x >srv/file"
    )
    ws.output("cp", "-r", tmp_path / "tree", ".:/srv")
    assert ws.output("exec", ".", "sh", "-c", "cd srv/tree && cat one two && ls -A ..").split() == [
        "newkept",
        "file",
        "tree",
    ]
    assert "something else of this name" in ws.fails(1, "cp", "-r", tmp_path / "tree", ".:/srv/file")
    assert ws.output("exec", ".", "cat", "srv/file") == "x\n"


def test_a_folder_that_cannot_be_sent_whole_changes_nothing(ws: Ws, made: str, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "large").write_bytes(bytes(200 << 20))
    ws.output("exec", ".", "mkdir", "-p", "srv")
    process = ws.process("cp", "-r", tmp_path / "tree", f"{made}:/srv/")
    wait_until(lambda: ".part" in ws.output("exec", ".", "ls", "-A", "srv"), 60)
    process.send_signal(signal.SIGINT)
    assert b"Traceback" not in process.communicate(timeout=60)[1]
    assert process.returncode == 130
    wait_until(lambda: ws.output("exec", ".", "ls", "-A", "srv") == "", 60)


def test_a_file_has_the_mode_of_its_source_on_both_sides(ws: Ws, made: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0o600)
    ws.output("cp", tmp_path / "secret", ".:/srv/secret")
    assert ws.output("exec", ".", "stat", "-c", "%a", "srv/secret").strip() == "600"
    ws.output("exec", ".", "sh", "-c", "echo x >srv/open; chmod 644 srv/open")
    ws.output("cp", tmp_path / "secret", ".:/srv/open")
    assert ws.output("exec", ".", "stat", "-c", "%a", "srv/open").strip() == "600"
    ws.output("cp", ".:/srv/secret", tmp_path / "back")
    assert stat.S_IMODE((tmp_path / "back").stat().st_mode) == 0o600
    ws.output("cp", "-", ".:/srv/typed", stdin=b"typed")
    assert ws.output("exec", ".", "stat", "-c", "%a", "srv/typed").strip() == "644"


def test_links_and_odd_names_of_a_guest_stay_within_the_target(ws: Ws, made: str, tmp_path: Path) -> None:
    names = (
        "mkdir -p srv/t/sub && cd srv/t && ln -s /etc sub/etc && ln -s / root && mkfifo pipe && echo x >'a\x1b[31mb'"
    )
    ws.output("exec", ".", "sh", "-c", f"{names}; printf y >\"$(printf 'bad\\377')\"; echo z >'..hidden'")
    target = tmp_path / "target"
    (tmp_path / "outside").mkdir()
    target.mkdir()
    (target / "t").mkdir()
    (target / "t" / "sub").symlink_to(tmp_path / "outside")
    text = ws.fails(1, "cp", "-r", ".:/srv/t", target)
    assert list((tmp_path / "outside").iterdir()) == []
    names = {path.name for path in (target / "t").iterdir()}
    assert names == {"sub", "a\x1b[31mb", "..hidden", os.fsdecode(b"bad\xff")}
    assert text.count("was left out") == 4  # the pipe, the link out, a folder that is a link here, and what is in it
    assert "\x1b" not in text
