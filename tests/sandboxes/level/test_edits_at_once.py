"""One file is edited by several processes of the platform, and by programs of the machine."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import os
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxes.models import Sandbox
from tests.callers import Caller
from tests.sandboxes.level.calls import SandboxCaller
from tests.workspaces.files.calls import write as write_file
from vmbackend.backend import machines_dir
from vmbackend.fake.guest import FakeGuestSession
from workspaces.data_plane.files import services
from workspaces.data_plane.files.edits import Edit
from workspaces.data_plane.files.errors import FileChanged

pytestmark = pytest.mark.django_db(transaction=True)
PROCESSES, EDITS = 4, 5


def session_of(box: SandboxCaller) -> FakeGuestSession:
    """Each process has one of its own."""
    return FakeGuestSession(machines_dir(), Sandbox.objects.get(pk=box.sandbox_id).workspace_id)


def test_edits_by_several_processes_are_all_made(box: SandboxCaller, disk: Path) -> None:
    numbers = range(PROCESSES * EDITS)
    (disk / "list").write_text("".join(f"<{number}>" for number in numbers))
    sessions = [session_of(box) for _ in range(PROCESSES)]

    async def edit(number: int) -> None:
        edits = [Edit(f"<{number}>", f"[{number}]")]
        await services.file_edit(sessions[number % PROCESSES], path="/list", edits=edits)

    async def work() -> None:
        await asyncio.gather(*(edit(number) for number in numbers))

    asyncio.run(work())
    assert (disk / "list").read_text() == "".join(f"[{number}]" for number in numbers)


def test_a_whole_content_and_an_edit_at_once_are_in_one_order(box: SandboxCaller, disk: Path) -> None:
    """The edit before the content, or after it; never the edited former content after it."""
    (disk / "file").write_text("old one")
    one, other = session_of(box), session_of(box)

    async def work() -> None:
        edit = services.file_edit(one, path="/file", edits=[Edit("one", "1")])
        await asyncio.gather(edit, services.file_replace(other, path="/file", content="new one"))

    asyncio.run(work())
    assert (disk / "file").read_text() in ("new one", "new 1")


@pytest.mark.parametrize("way", ["upload", "overlay"])
def test_a_write_waits_for_the_edit_that_has_compared_the_file(
    api: Caller, box: SandboxCaller, disk: Path, way: str
) -> None:
    """Else the edit, made to the former content, would replace what was written and acknowledged."""
    (disk / "file").write_text("old")
    content = base64.b64encode(b"new").decode()
    with ThreadPoolExecutor(1) as pool:
        with locked(disk):  # as an edit between its look at the file and its rename
            if way == "upload":
                write = pool.submit(box.post, "files/upload", {"filePath": "/file", "content": content})
            else:
                write = pool.submit(write_file, api, "/file", b"new")
            wait_for_partial(disk)
            time.sleep(0.2)
            assert not write.done()
            assert (disk / "file").read_text() == "old"
        write.result(120)
    assert (disk / "file").read_text() == "new"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    opened = os.open(folder, os.O_RDONLY)
    fcntl.flock(opened, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(opened)


def wait_for_partial(folder: Path) -> None:
    deadline = time.monotonic() + 120
    while not list(folder.glob(".partial-*")):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_file_that_a_program_changes_all_the_time_is_not_edited(
    box: SandboxCaller, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (disk / "file").write_text("x")
    session = session_of(box)
    read = session.read

    def read_before_a_program_writes(path: str) -> AsyncIterator[bytes]:
        chunks = read(path)

        async def after() -> AsyncIterator[bytes]:
            async for chunk in chunks:
                yield chunk
            with (disk / "file").open("a") as file:
                file.write("y")

        return after()

    monkeypatch.setattr(session, "read", read_before_a_program_writes)
    with pytest.raises(FileChanged):
        asyncio.run(services.file_edit(session, path="/file", edits=[Edit("x", "z")]))
    assert (disk / "file").read_text() == "x" + "y" * services.ATTEMPTS
