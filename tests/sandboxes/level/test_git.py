"""Git of a sandbox, by the git of this host, with remotes that the tests make."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from common.times import iso
from sandboxes.level.git.status import read_log, read_status
from tests.sandboxes.level.calls import SandboxCaller
from vmbackend.errors import GuestCommandInvalid
from vmbackend.fake.guest import FakeGuestSession

pytestmark = pytest.mark.django_db(transaction=True)
AUTHOR = {"name": "Ada", "email": "ada@example.com"}
REPO = {"repoPath": "/w/repo"}


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=Bob", "-c", "user.email=bob@example.com"]
    environment = {**os.environ, "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *who, *words], cwd=folder, env=environment, capture_output=True, check=True)
    return done.stdout.decode().strip()


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A bare repository with one commit on `main`."""
    bare, work = tmp_path / "remote.git", tmp_path / "work"
    subprocess.run(["git", "init", "-q", "--bare", "--initial-branch=main", bare], check=True)
    work.mkdir()
    git(work, "init", "-q", "--initial-branch=main")
    (work / "a").write_text("one\n")
    git(work, "add", "a")
    git(work, "commit", "-qm", "first\n\nbody")
    git(work, "remote", "add", "origin", str(bare))
    git(work, "push", "-q", "origin", "main")
    return bare


def push_change(remote: Path, content: str) -> str:
    """Another one's commit on the remote's main."""
    work = remote.with_name("work")
    git(work, "pull", "-q", "--rebase", "origin", "main")
    (work / "a").write_text(content)
    git(work, "commit", "-qam", "theirs")
    git(work, "push", "-q", "origin", "main")
    return git(work, "rev-parse", "HEAD")


@pytest.fixture
def cloned(box: SandboxCaller, remote: Path) -> SandboxCaller:
    box.post("git/clone", {"url": f"file://{remote}", "targetDir": "/w/repo"})
    return box


def commit(box: SandboxCaller, disk: Path, name: str, content: str) -> dict[str, Any]:
    (disk / "w/repo" / name).write_text(content)
    box.post("git/add", {**REPO, "files": [name]})
    found: dict[str, Any] = box.post("git/commit", {**REPO, "message": "mine", "author": AUTHOR})
    return found


def test_a_repository_is_cloned_and_looked_at(box: SandboxCaller, disk: Path, remote: Path) -> None:
    head = git(remote.with_name("work"), "rev-parse", "HEAD")
    made = box.post("git/clone", {"url": str(remote), "targetDir": "/w/repo", "branch": "main"})
    assert (made["branch"], made["commit"], (disk / "w/repo/a").read_text()) == ("main", head, "one\n")
    assert box.post("git/check", REPO)["isRepository"] is True
    assert box.post("git/check", {"repoPath": "/w"}) == {"success": True, "isRepository": False, "path": None}
    (row,) = box.post("git/history", REPO)["commits"]
    assert (row["hash"], row["message"], row["author"]) == (head, "first\n\nbody", "Bob")
    written = datetime.fromtimestamp(int(git(remote.with_name("work"), "log", "-1", "--format=%at")), UTC)
    assert row["date"] == iso(written)
    assert box.refused("git/clone", {"url": str(remote), "targetDir": "/w/repo"})[:2] == (409, "git_conflict")


def test_changes_are_staged_committed_and_pushed(cloned: SandboxCaller, disk: Path, remote: Path) -> None:
    (disk / "w/repo/a").write_text("two\n")
    (disk / "w/repo/new ü\nline").write_text("x\ny\n")
    found = cloned.post("git/status", REPO)
    assert (found["branch"], found["ahead"], found["behind"], found["upstream"]) == ("main", 0, 0, "origin/main")
    assert (found["staged"], found["modified"], found["untracked"]) == ([], ["a"], ["new ü\nline"])
    cloned.post("git/add", REPO)
    assert cloned.post("git/status", REPO)["staged"] == ["a", "new ü\nline"]
    made = cloned.post("git/commit", {**REPO, "message": "# mine\n", "author": AUTHOR})
    assert (made["files"], made["insertions"], made["deletions"]) == (2, 3, 1)
    row = cloned.post("git/history", {**REPO, "limit": 1})["commits"][0]
    assert (row["hash"], row["message"], row["author"], row["email"]) == (
        made["commit"], "# mine", "Ada", "ada@example.com",
    )  # fmt: skip
    assert cloned.post("git/status", REPO)["ahead"] == 1
    assert cloned.post("git/push", REPO)["commit"] == made["commit"]
    assert git(remote, "rev-parse", "main") == made["commit"]
    again = cloned.refused("git/commit", {**REPO, "message": "x", "author": AUTHOR})
    assert again[:2] == (409, "git_nothing_to_commit")


def test_a_date_is_in_utc_whatever_the_authors_offset(cloned: SandboxCaller, disk: Path) -> None:
    for date, shown in (
        ("1700000000 +0530", "2023-11-14T22:13:20.000Z"),
        ("1700000000 -0800", "2023-11-14T22:13:20.000Z"),
    ):
        git(disk / "w/repo", "commit", "-q", "--allow-empty", "-m", "x", f"--date={date}")
        assert cloned.post("git/history", {**REPO, "limit": 1})["commits"][0]["date"] == shown


def test_names_that_are_not_utf8_are_staged_by_their_bytes(cloned: SandboxCaller, disk: Path) -> None:
    names = [b"caf\xe9", b"caf\xe8"]
    for name in names:
        (disk / "w/repo" / os.fsdecode(name)).write_text("x")
    found = cloned.post("git/status", REPO)
    assert found["untracked"] == ["caf\ufffd", "caf\ufffd"]
    assert found["encodedPaths"] == {"caf\ufffd": ["caf%E8", "caf%E9"]}
    cloned.post("git/add", {**REPO, "files": [{"encoded": "caf%E9"}]})
    found = cloned.post("git/status", REPO)
    assert (found["staged"], found["untracked"]) == (["caf\ufffd"], ["caf\ufffd"])
    assert git(disk / "w/repo", "diff", "--cached", "--name-only") == '"caf\\351"'
    for wrong in ({"encoded": "a%00"}, {"encoded": ""}, "", {}):
        assert cloned.refused("git/add", {**REPO, "files": [wrong]})[:2] == (400, "validation_error")


def test_what_the_remote_has_is_pulled(cloned: SandboxCaller, disk: Path, remote: Path) -> None:
    theirs = push_change(remote, "two\n")
    assert cloned.post("git/pull", REPO)["commit"] == theirs
    assert (disk / "w/repo/a").read_text() == "two\n"


def test_a_push_that_is_no_fast_forward_is_told_apart_and_can_be_forced(
    cloned: SandboxCaller, disk: Path, remote: Path
) -> None:
    push_change(remote, "two\n")
    made = commit(cloned, disk, "b", "b\n")
    assert cloned.refused("git/push", REPO)[:2] == (409, "git_not_fast_forward")
    cloned.post("git/push", {**REPO, "force": True, "branch": "main"})
    assert git(remote, "rev-parse", "main") == made["commit"]


def test_a_pull_with_a_conflict_is_left_to_be_resolved_or_forced(
    cloned: SandboxCaller, disk: Path, remote: Path
) -> None:
    theirs = push_change(remote, "two\n")
    commit(cloned, disk, "a", "mine\n")
    git(disk / "w/repo", "config", "user.name", "x")
    git(disk / "w/repo", "config", "user.email", "x@example.com")
    assert cloned.refused("git/pull", REPO)[:2] == (409, "git_conflict")
    assert cloned.post("git/status", REPO)["conflicted"] == ["a"]
    assert cloned.post("git/pull", {**REPO, "force": True, "branch": "main"})["commit"] == theirs
    assert (disk / "w/repo/a").read_text() == "two\n"


def test_branches(cloned: SandboxCaller) -> None:
    assert cloned.post("git/branch/list", REPO) == {"success": True, "branches": ["main"], "current": "main"}
    created = cloned.post("git/branch/create", {**REPO, "branchName": "next/a"})
    assert (created["branches"], created["current"]) == (["main", "next/a"], "main")
    assert cloned.post("git/branch/create", {**REPO, "branchName": "b", "checkout": True})["current"] == "b"
    assert cloned.refused("git/branch/create", {**REPO, "branchName": "b"})[:2] == (409, "git_conflict")
    assert cloned.post("git/branch/checkout", {**REPO, "branchName": "next/a"})["current"] == "next/a"
    assert cloned.refused("git/branch/checkout", {**REPO, "branchName": "none"})[:2] == (404, "git_not_found")
    head = cloned.post("git/history", REPO)["commits"][0]["hash"]
    assert cloned.post("git/branch/checkout", {**REPO, "branchName": head})["current"] is None
    assert cloned.post("git/branch/current", REPO)["current"] is None


def test_a_new_repository_has_no_commits(box: SandboxCaller, disk: Path) -> None:
    made = box.post("git/init", {**REPO, "branch": "trunk"})
    assert (made["branch"], made["commit"]) == ("trunk", None)
    assert box.post("git/history", REPO)["commits"] == []
    assert box.post("git/branch/list", REPO) == {"success": True, "branches": [], "current": "trunk"}
    assert box.post("git/config/user", {**REPO, **AUTHOR})["success"] is True
    assert git(disk / "w/repo", "config", "--local", "user.name") == "Ada"
    assert box.post("git/init", REPO)["branch"] == "trunk"


def test_files_are_staged_by_name_and_not_by_pattern(cloned: SandboxCaller, disk: Path) -> None:
    for name in ("x", "y", "*", "-A"):
        (disk / "w/repo" / name).write_text("")
    cloned.post("git/add", {**REPO, "files": ["*", "-A"]})
    assert cloned.post("git/status", REPO)["staged"] == ["*", "-A"]
    assert cloned.refused("git/add", {**REPO, "files": ["x", "none"]})[:2] == (404, "git_not_found")
    assert cloned.post("git/status", REPO)["untracked"] == ["x", "y"]


class Refusing(BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self.server.asked.append(self.headers.get("Authorization", ""))  # type: ignore[attr-defined]
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def guarded() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    server.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_remote_that_wants_credentials_is_told_apart_and_nobody_is_asked(
    box: SandboxCaller, disk: Path, guarded: HTTPServer
) -> None:
    url = f"http://127.0.0.1:{guarded.server_port}/x.git"
    status, code, details = box.refused("git/clone", {"url": url, "targetDir": "/w/x"})
    assert (status, code, details) == (400, "git_authentication_failed", {"exitCode": 128})
    assert set(guarded.asked) == {""}  # type: ignore[attr-defined]
    assert not (disk / "w/x").exists()


def test_a_remote_that_is_not_reached_or_has_no_repository(box: SandboxCaller, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/x.git"
        assert box.refused("git/clone", {"url": url, "targetDir": "/w/x"})[:2] == (502, "git_network_error")
    assert box.refused("git/clone", {"url": str(tmp_path / "none"), "targetDir": "/w/x"})[:2] == (404, "git_not_found")
    assert box.refused("git/status", {"repoPath": "/"})[:2] == (404, "git_not_found")
    assert box.refused("git/status", {"repoPath": "/none"})[:2] == (404, "path_not_found")


def test_an_image_without_git_is_409(box: SandboxCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    async def absent(self: FakeGuestSession, command: list[str], **_: Any) -> Any:
        assert command[0] == "git"
        raise GuestCommandInvalid("The command cannot be started.")

    monkeypatch.setattr(FakeGuestSession, "execute", absent)
    assert box.refused("git/init", REPO)[:2] == (409, "git_not_available")
    assert box.refused("git/status", REPO)[:2] == (404, "path_not_found")


@pytest.mark.parametrize(
    ("route", "body", "field"),
    [
        *(
            ("clone", {"url": url, "targetDir": "/w/x"}, "url")
            for url in (
                "", "-x", "--upload-pack=touch /x", "ext::sh -c id", "fd::7", "x::y", "ftp://h/x", "http://", "ssh://-oX/y",
                "relative/path", "http://h/a b", "http://u:p@h/x", "a\0b", "file://host/x", "http://[x/", "-h:x", 5,
            )
        ),
        ("clone", {"url": "/x", "targetDir": "relative"}, "targetDir"),
        ("clone", {"url": "/x", "targetDir": "/x", "auth": {"type": "token", "token": "secret"}}, "auth"),
        ("pull", {**REPO, "auth": {}}, "auth.type"),
        ("pull", {**REPO, "auth": "x"}, "auth.non_field_errors"),
        *(
            ("branch/create", {**REPO, "branchName": name}, "branchName")
            for name in (
                "", "-b", "a b", "a..b", "a~", "a^", "a:b", "a?", "a*", "a[", "a\\", "@{x", "/a", "a/", "a.", "a.lock",
                ".a", "a/.b", "a//b", "@", "x" * 251, "a\nb", 5,
            )
        ),
        ("clone", {"url": "/x", "targetDir": "/x", "branch": "--upload-pack=x"}, "branch"),
        ("push", {**REPO, "force": 1}, "force"),
        ("add", {**REPO, "files": []}, "files"),
        ("add", {**REPO, "files": ["a\0"]}, "files.0"),
        ("commit", {**REPO, "message": " "}, "message"),
        ("commit", {**REPO, "message": "x", "author": {"name": "<", "email": "e"}}, "author.name"),
        ("history", {**REPO, "limit": 1001}, "limit"),
        ("config/user", {"repoPath": "/x"}, "name"),
    ],
)  # fmt: skip
def test_a_request_of_a_wrong_kind_is_400(box: SandboxCaller, route: str, body: Any, field: str) -> None:
    status, code, details = box.refused(f"git/{route}", body)
    assert (status, code, list(details)) == (400, "validation_error", [field])


def test_what_git_prints_is_read_whatever_it_is() -> None:
    printed = [
        b"# branch.oid (initial)", b"# branch.head x", b"# branch.ab +3 -4", b"1 M. N... 1 1 1 a b path with space",
        b"2 R. N... 1 1 1 a b R100 to", b"from", b"u UU N... 1 1 1 1 a b c both", b"! x", b"nonsense", b"", b"1", b"2 ",
    ]  # fmt: skip
    found = read_status(b"\0".join(printed))
    assert (found.branch, found.commit, found.ahead, found.behind) == ("x", None, 3, 4)
    assert (found.staged, found.conflicted) == (["path with space", "to"], ["both"])
    assert [commit.hash for commit in read_log(b"h\0a\0e\0d\0m\n\0\nh2\0a\0", 9)] == ["h"]
