"""Credentials of a call of git: they reach the remote's own host, and nothing else has them, then or later."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps

from common.redis import redis_client
from sandboxes.level.git.addresses import Remote, read_remote
from sandboxes.level.git.credentials import Login
from tests.sandboxes.level.calls import SandboxCaller
from tests.sandboxes.level.git_server import GitServer, running
from tests.sandboxes.level.test_git import REPO, commit, git, push_change, remote
from vmbackend.fake.guest import FakeGuestSession

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]
__all__ = ["remote"]

SECRET = "s3cret/+ p%40ss"  # of these tests
LOGIN = {"type": "token", "username": "ada", "password": SECRET}
SPELLINGS = [SECRET.encode(), b"s3cret", base64.b64encode(f"ada:{SECRET}".encode())]


@pytest.fixture
def box(box: SandboxCaller, hold_program: Path, monkeypatch: pytest.MonkeyPatch) -> SandboxCaller:
    """A sandbox whose commands are started by the kit's own program."""
    link = hold_program.with_name("askpass")
    if not link.is_symlink():
        link.symlink_to(hold_program.name)
    monkeypatch.setattr(FakeGuestSession, "helper", hold_program)
    return box


@pytest.fixture
def server(remote: Path) -> Iterator[GitServer]:
    """The remote over HTTP, for ada with the password."""
    subprocess.run(["git", "-C", remote, "config", "http.receivepack", "true"], check=True)
    with running(GitServer(remote.parent, "ada", SECRET)) as made:
        yield made


@pytest.fixture
def cloned(box: SandboxCaller, server: GitServer) -> SandboxCaller:
    box.post("git/clone", {"url": f"{server.url}/remote.git", "targetDir": "/w/repo", "auth": LOGIN})
    return box


def files_with_secret(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if any(text in path.read_bytes() for text in SPELLINGS)]


def stored_values() -> str:
    """All that the database and Redis have."""
    rows = [repr(list(model.objects.values_list())) for model in apps.get_models()]
    client = redis_client()
    readers = {b"string": client.get, b"hash": client.hgetall, b"set": client.smembers}
    keys = list(client.scan_iter())
    values = [
        readers[kind](key)
        if (kind := client.type(key)) in readers
        else client.lrange(key, 0, -1)
        if kind == b"list"
        else client.zrange(key, 0, -1)
        if kind == b"zset"
        else client.xrange(key)
        for key in keys
    ]
    assert keys
    return f"{rows}{keys}{values}"


def test_a_private_repository_is_cloned_pulled_and_pushed_and_nothing_keeps_the_password(
    cloned: SandboxCaller, server: GitServer, remote: Path, disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    theirs = push_change(remote, "two\n")
    assert cloned.post("git/pull", {**REPO, "auth": LOGIN})["commit"] == theirs
    assert (disk / "w/repo/a").read_text() == "two\n"
    made = commit(cloned, disk, "b", "b\n")
    assert cloned.post("git/push", {**REPO, "auth": LOGIN})["commit"] == made["commit"]
    assert git(remote, "rev-parse", "main") == made["commit"]
    assert server.presented() == {None, server.wanted}
    assert git(disk / "w/repo", "config", "remote.origin.url") == f"{server.url}/remote.git"
    assert files_with_secret(disk) == []
    assert not list(Path("/dev/shm").glob(".ask-*"))
    for text in (caplog.text, stored_values()):
        assert not any(spelling.decode() in text for spelling in SPELLINGS)
    assert cloned.refused("git/pull", REPO)[:2] == (400, "git_authentication_failed")


def test_a_forced_pull_and_a_push_that_is_no_fast_forward_are_as_without_credentials(
    cloned: SandboxCaller, remote: Path, disk: Path
) -> None:
    theirs = push_change(remote, "two\n")
    commit(cloned, disk, "b", "b\n")
    assert cloned.refused("git/push", {**REPO, "auth": LOGIN})[:2] == (409, "git_not_fast_forward")
    forced = {**REPO, "auth": LOGIN, "force": True, "branch": "main"}
    assert cloned.post("git/pull", forced)["commit"] == theirs
    commit(cloned, disk, "a", "mine\n")
    push_change(remote, "three\n")
    git(disk / "w/repo", "config", "user.name", "x")
    git(disk / "w/repo", "config", "user.email", "x@example.com")
    assert cloned.refused("git/pull", {**REPO, "auth": LOGIN})[:2] == (409, "git_conflict")


def test_a_wrong_password_is_refused_with_the_sentence_of_git_and_without_the_password(
    box: SandboxCaller, server: GitServer, disk: Path
) -> None:
    server.refusal = f"not {SECRET}x, ada".encode()  # a server that repeats what it was given
    wrong = {**LOGIN, "password": f"{SECRET}x"}
    body = {"url": f"{server.url}/remote.git", "targetDir": "/w/repo", "auth": wrong}
    response, content = box.ask("git/clone", body)
    assert response.status_code == 400
    assert b"git_authentication_failed" in content
    assert b"Authentication failed" in content
    assert not any(text in content for text in SPELLINGS)
    assert not (disk / "w/repo").exists()


def test_a_short_password_does_not_hide_what_git_says(box: SandboxCaller, server: GitServer) -> None:
    body = {"url": f"{server.url}/remote.git", "targetDir": "/w/repo", "auth": {**LOGIN, "password": "a"}}
    assert box.refused("git/clone", body)[:2] == (400, "git_authentication_failed")


def test_a_token_needs_no_name(box: SandboxCaller, remote: Path) -> None:
    with running(GitServer(remote.parent, "x-access-token", "tok")) as server:
        auth = {"type": "token", "token": "tok"}
        box.post("git/clone", {"url": f"{server.url}/remote.git", "targetDir": "/w/repo", "auth": auth})


def test_the_name_in_an_address_is_the_one_that_is_used(box: SandboxCaller, server: GitServer) -> None:
    url = f"http://ada@127.0.0.1:{server.server_port}/remote.git"
    auth = {"type": "token", "token": SECRET}
    box.post("git/clone", {"url": url, "targetDir": "/w/repo", "auth": auth})


def test_a_redirect_to_another_host_gets_nothing(box: SandboxCaller, server: GitServer, remote: Path) -> None:
    with running(GitServer(remote.parent, "ada", SECRET)) as other:
        server.redirect = other.url
        body = {"url": f"{server.url}/remote.git", "targetDir": "/w/repo", "auth": LOGIN}
        assert box.refused("git/clone", body)[:2] == (400, "git_authentication_failed")
        assert other.asked
        assert other.presented() == {None}


def test_a_submodule_on_another_host_gets_nothing(
    cloned: SandboxCaller, remote: Path, disk: Path, tmp_path: Path
) -> None:
    """It is fetched by git where it is there, and its repository has new commits."""
    subprocess.run(["git", "clone", "-q", "--bare", remote, tmp_path / "below.git"], check=True)
    with running(GitServer(tmp_path, "ada", SECRET)) as other:
        work, inside = remote.with_name("work"), disk / "w/repo/below"
        head = git(work, "rev-parse", "HEAD")
        (work / ".gitmodules").write_text(f'[submodule "below"]\npath = below\nurl = {other.url}/below.git\n')
        git(work, "add", ".gitmodules")
        git(work, "update-index", "--add", "--cacheinfo", f"160000,{head},below")
        git(work, "commit", "-qm", "below")
        git(work, "push", "-q", "origin", "main")
        cloned.post("git/pull", {**REPO, "auth": LOGIN})
        git(disk / "w/repo", "clone", "-q", str(tmp_path / "below.git"), str(inside))
        git(inside, "remote", "set-url", "origin", f"{other.url}/below.git")
        git(disk / "w/repo", "submodule", "-q", "init")
        for name in ("submodule.recurse", "fetch.recurseSubmodules", "submodule.below.fetchRecurseSubmodules"):
            git(disk / "w/repo", "config", name, "true")
        git(work, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},below")
        git(work, "commit", "-qm", "below again")
        git(work, "push", "-q", "origin", "main")
        cloned.ask("git/pull", {**REPO, "auth": LOGIN})
        assert other.presented() <= {None}


def evil_program(disk: Path, name: str) -> Path:
    """Asks as git does, and keeps the answer."""
    script = disk / name
    script.parent.mkdir(parents=True, exist_ok=True)
    question = "Password for 'http://127.0.0.1:%s': "
    script.write_text(
        "#!/bin/sh\n"
        f"echo ran >> {disk}/ran\n"
        f'"$GIT_ASKPASS" "{question % "$(git config remote.origin.url | tr -dc 0-9: | cut -d: -f3)"}" >> {disk}/kept\n'
        f"cat /proc/$PPID/environ >> {disk}/kept; env >> {disk}/kept; cat >> {disk}/kept < /dev/null\n"
    )
    script.chmod(0o755)
    return script


def test_no_program_that_a_repository_names_is_answered(
    cloned: SandboxCaller, remote: Path, disk: Path, server: GitServer
) -> None:
    evil = str(evil_program(disk, "evil"))
    repo = disk / "w/repo"
    for hook in ("pre-push", "post-merge", "reference-transaction", "post-checkout", "pre-auto-gc"):
        evil_program(disk, f"w/repo/.git/hooks/{hook}")
        evil_program(disk, f"hooks/{hook}")
    settings = {
        "core.hooksPath": str(disk / "hooks"), "core.sshCommand": evil, "core.askPass": evil, "core.fsmonitor": evil,
        "credential.helper": evil, f"credential.{server.url}.helper": evil, "gpg.program": evil,
        "push.gpgSign": "if-asked", "gc.recentObjectsHook": evil, "core.gitProxy": evil,
    }  # fmt: skip
    for name, value in settings.items():
        git(repo, "config", name, value)
    push_change(remote, "two\n")
    cloned.post("git/pull", {**REPO, "auth": LOGIN})
    commit(cloned, disk, "b", "b\n")
    cloned.post("git/push", {**REPO, "auth": LOGIN})
    assert files_with_secret(disk) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("url.{other}/.insteadOf", "{server}/"),
        ("url.{other}/.pushInsteadOf", "{server}/"),
        ("http.proxy", "{other}"),
        ("http.{server}/.proxy", "{other}"),
        ("http.sslVerify", "false"),
        ("http.curloptResolve", "a:80:127.0.0.1"),
        ("remote.origin.proxy", "{other}"),
        ("remote.origin.vcs", "ext"),
    ],
)
def test_a_configuration_that_leads_elsewhere_is_refused(
    cloned: SandboxCaller, disk: Path, server: GitServer, tmp_path: Path, name: str, value: str
) -> None:
    with running(GitServer(tmp_path, "ada", SECRET)) as other:
        named = {"server": server.url, "other": other.url}
        git(disk / "w/repo", "config", name.format(**named), value.format(**named))
        refusal = cloned.refused("git/push", {**REPO, "auth": LOGIN})
        assert refusal[:2] == (409, "git_credentials_refused")
        assert other.presented() <= {None}


def test_a_remote_of_another_kind_is_refused(cloned: SandboxCaller, disk: Path, remote: Path) -> None:
    git(disk / "w/repo", "remote", "set-url", "origin", str(remote))
    assert cloned.refused("git/pull", {**REPO, "auth": LOGIN})[:2] == (409, "git_credentials_refused")
    git(disk / "w/repo", "remote", "remove", "origin")
    assert cloned.refused("git/pull", {**REPO, "auth": LOGIN})[:2] == (404, "git_not_found")


@pytest.mark.parametrize(
    ("auth", "field"),
    [
        ({}, "type"),
        ({"type": SECRET}, "type"),
        ({"type": "token"}, "token"),
        ({"type": "token", "token": SECRET, "password": SECRET}, "token"),
        ({"type": "token", "password": SECRET}, "username"),
        ({"type": "token", "username": "a:b", "password": SECRET}, "username"),
        ({"type": "token", "token": f"{SECRET}\n"}, "token"),
        ({"type": "token", "token": 5}, "token"),
        ({"type": "token", "token": "x" * 4001}, "token"),
        ({"type": "token", "token": SECRET, "sshKey": SECRET}, "sshKey"),
        ({"type": "ssh"}, "sshKey"),
        ({"type": "ssh", "sshKey": SECRET}, "sshKey"),
    ],
)
def test_credentials_of_a_wrong_kind_are_400_and_are_not_repeated(
    box: SandboxCaller, auth: dict[str, Any], field: str
) -> None:
    body = {"url": "http://127.0.0.1:1/x", "targetDir": "/w/x", "auth": auth}
    status, code, details = box.refused("git/clone", body)
    assert (status, code, list(details)) == (400, "validation_error", [f"auth.{field}"])
    assert SECRET.encode() not in box.ask("git/clone", body)[1]
    assert box.refused("git/push", {**REPO, "auth": auth})[:2] == (400, "validation_error")


@pytest.mark.parametrize("url", ["ssh://h/x", "git@h:x", "/x", "file:///x", "git://h/x"])
def test_a_password_is_for_http_only(box: SandboxCaller, url: str) -> None:
    status, code, details = box.refused("git/clone", {"url": url, "targetDir": "/w/x", "auth": LOGIN})
    assert (status, code, list(details)) == (400, "validation_error", ["auth"])


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("https://Example.com/a/b", Remote("https", "example.com", 443)),
        ("https://u@example.com:8443/a", Remote("https", "example.com", 8443, "u")),
        ("ssh://git@h/x", Remote("ssh", "h", 22, "git")),
        ("git@h.example:a/b.git", Remote("ssh", "h.example", 22, "git")),
        ("h:x", Remote("ssh", "h", 22)),
        ("/a:b", None),
        ("http://h:x/y", None),
        ("https:///x", None),
    ],
)
def test_where_an_address_leads(address: str, place: Remote | None) -> None:
    assert read_remote(address) == place


@pytest.mark.parametrize(
    ("place", "answered"),
    [
        ("https://h.example", True),
        ("https://ada%40x@h.example:443", True),
        ("https://h.example/a/b", True),
        ("http://h.example", False),
        ("https://h.example:444", False),
        ("https://h.example.evil", False),
        ("https://h.example@evil", False),
        ("https://evil/h.example", False),
        ("cert:///h.example", False),
    ],
)
def test_a_question_is_answered_for_its_own_host_only(place: str, answered: bool) -> None:
    login, wanted = Login("ada", SECRET), Remote("https", "h.example", 443)
    for kind, value in (("Username", "ada"), ("Password", SECRET)):
        question = f"\xf0{kind} for '{place}': ".encode("latin-1")
        found = asyncio.run(login.answer(question, wanted))
        assert found == (b"\xf0" + value.encode() if answered else b"")
    assert asyncio.run(login.answer(b"\x0b", wanted)) == b""
    assert SECRET not in repr(login)


def test_what_is_meant_for_plain_http_may_go_to_https_and_not_back() -> None:
    plain, safe = Remote("http", "h", 80), Remote("https", "h", 443)
    assert safe.is_place_of(plain)
    assert not plain.is_place_of(safe)
    assert not Remote("https", "h", 8443).is_place_of(plain)
