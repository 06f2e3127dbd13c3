"""A git that is ended at its deadline removes its lock files, so that the next one works."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes.level.git.command import run_git
from sandboxes.level.git.credentials import Login
from sandboxes.level.git.errors import GitCredentialsRefused, GitTimedOut
from sandboxes.level.git.services import repository_clone
from tests.vmbackend.local_dropbear import LocalGuest, missing_requirement
from vmbackend.guest.commands import KitPaths
from vmbackend.guest.ssh import SSHGuestSession

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools"),
]


@pytest.fixture
def local(hold_program: Path, tmp_path: Path) -> Iterator[LocalGuest]:
    made = LocalGuest(tmp_path, hold_program)
    yield made
    made.stop()


@pytest.fixture
def slow(local: LocalGuest) -> Path:
    """A repository whose files take for ever to be staged. `began` beside it: one is."""
    folder = local.root / "repo"
    subprocess.run(["git", "init", "-q", folder], check=True)
    began = local.root / "began"
    program = f"touch {began}; exec sleep 1000"
    subprocess.run(["git", "-C", folder, "config", "filter.slow.clean", program], check=True)
    (folder / ".gitattributes").write_text("a filter=slow\n")
    (folder / "a").write_text("a")
    return folder


async def add_ended(local: LocalGuest, folder: Path) -> None:
    """`git add`, ended at its deadline after it had begun."""
    session = SSHGuestSession(local.address, local.private_key, kit=local.kit)
    seconds = 3.0
    try:
        while not (local.root / "began").exists():
            with pytest.raises(GitTimedOut):
                await run_git(session, ["add", "a"], path=str(folder), seconds=seconds)
            seconds *= 2
    finally:
        await session.close()


def test_no_lock_is_left_at_a_deadline(local: LocalGuest, slow: Path) -> None:
    asyncio.run(add_ended(local, slow))
    assert not (slow / ".git" / "index.lock").exists()
    subprocess.run(["git", "-C", slow, "add", ".gitattributes"], check=True)


@pytest.fixture
def older(local: LocalGuest, tmp_path: Path) -> KitPaths:
    """A machine that was started before an update has the helper of then."""
    helper = tmp_path / "old"
    helper.write_text(
        f"""#!/bin/sh
head -c "$3" > {tmp_path}/block
case "$(tr '\\0' ' ' < {tmp_path}/block)" in
*--grace*|*--ask*)
    echo 'run: unrecognized option: grace' >&2
    echo 'guest: usage: guest run [--env K=V] -- COMMAND' >&2
    exit 126;;
esac
{local.kit.helper} run --stdin-args "$3" < {tmp_path}/block
"""
    )
    helper.chmod(0o755)
    return KitPaths(str(helper), local.kit.sftp_server, local.kit.busybox, "/", local.kit.tracking)


def test_with_an_older_helper_git_is_ended_as_before_and_credentials_are_refused(
    local: LocalGuest, older: KitPaths
) -> None:
    async def run() -> bytes:
        session = SSHGuestSession(local.address, local.private_key, kit=older)
        fields = {"url": "http://127.0.0.1:1/x", "target": f"{local.root}/x", "branch": None}
        try:
            with pytest.raises(GitCredentialsRefused, match="restart"):
                await repository_clone(session, **fields, auth=Login("ada", "x"))
            return (await run_git(session, ["version"], path=os.fspath(local.root))).stdout
        finally:
            await session.close()

    assert asyncio.run(run()).startswith(b"git version")
