"""What a credential began ends with it: bodies on their way in either direction, of both levels."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from accounts.models import Account, Credential
from accounts.scopes import Scope
from accounts.services import credential_end, credential_remove
from common import streaming_body
from common.sse import watched_grants
from sandboxes.services import token_regenerate
from tests.asgi import Request
from tests.callers import Caller
from tests.common.sse.reading import until
from tests.sandboxes.level.calls import SandboxCaller
from tests.workspaces.files.test_streaming_uploads import HALF, Upload, partial
from vmbackend.fake.guest import FakeGuestSession
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)
HUGE = 1 << 40
LOG = "/var/log/workspace/cmd.log"
FILES = "/workspace/the-box/overlay/files"
RAW = {"Accept": "application/octet-stream"}


class Download(Request):
    """Counts the bytes of the body, which is not kept. A client that does not `read` takes one chunk."""

    def __init__(self, *request: Any, reads: bool, query: str = "") -> None:
        super().__init__(*request)
        self.scope["query_string"] = query.encode()
        self.received = 0
        self._reads = reads

    async def _send(self, message: dict[str, Any]) -> None:
        self.received += len(message.get("body", b""))
        self.status = message.get("status", self.status)
        if self.received and not self._reads:
            await asyncio.Event().wait()
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_grants, "CHECK_SECONDS", 0.05)


@pytest.fixture
def holder(api: Caller, scoped: Callable[..., Caller]) -> Caller:
    return scoped(api, Scope.ACCOUNT)


def rotate(holder: Caller, box: SandboxCaller) -> None:
    credential_end(Credential.objects.get(client_id=holder.client_id))


def remove(holder: Caller, box: SandboxCaller) -> None:
    credential_remove(Credential.objects.get(client_id=holder.client_id))


def regenerate(holder: Caller, box: SandboxCaller) -> None:
    token_regenerate(workspace=Workspace.objects.get(), actor="its owner")


def deactivate(holder: Caller, box: SandboxCaller) -> None:
    Account.objects.update(is_active=False)


def control_plane(path: str, query: str, headers: dict[str, str]) -> Callable[..., Download]:
    def make(holder: Caller, box: SandboxCaller, reads: bool) -> Download:
        return Download(path, {**holder.headers, **headers}, reads=reads, query=query)

    return make


def of_the_sandbox(holder: Caller, box: SandboxCaller, reads: bool) -> Download:
    sent = {"Authorization": f"Bearer {box.token}"}
    return Download(f"/s/{box.sandbox_id}/files/download", sent, "POST", {"filePath": LOG}, reads=reads)


raw_file = control_plane(FILES, f"path={LOG}", RAW)
log_file = control_plane("/workspace/the-box/logs/file/cmd.log", "", {"Accept": "text/plain"})


async def changed(change: Callable[[], Any]) -> None:
    def run() -> None:
        change()
        connections.close_all()

    await asyncio.to_thread(run)


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (raw_file, rotate),
        (raw_file, remove),
        (raw_file, deactivate),
        (log_file, rotate),
        (of_the_sandbox, regenerate),
        (of_the_sandbox, deactivate),
    ],
)
def test_a_download_ends_with_what_began_it_also_where_its_client_does_not_read(
    box: SandboxCaller,
    holder: Caller,
    reads: bool,
    begin: Callable[..., Download],
    end: Callable[[Caller, SandboxCaller], None],
) -> None:
    file = box.disk / LOG[1:]
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as opened:
        opened.truncate(HUGE)

    async def work() -> Download:
        request = begin(holder, box, reads)
        task = asyncio.ensure_future(request.run())
        await until(lambda: request.received, 30)
        await changed(lambda: end(holder, box))
        await asyncio.wait_for(task, 30)
        return request

    request = asyncio.run(work())
    assert request.status == 200
    assert 0 < request.received < HUGE
    assert not watched_grants._watches


def test_a_download_goes_on_when_another_credential_ends(api: Caller, box: SandboxCaller, holder: Caller) -> None:
    (box.disk / "file").write_bytes(b"x" * (4 << 20))

    async def work() -> Download:
        own = Download(FILES, {**api.headers, **RAW}, reads=True, query="path=/file")
        other = Download(FILES, {**holder.headers, **RAW}, reads=False, query="path=/file")
        task = asyncio.ensure_future(other.run())
        await until(lambda: other.received, 30)
        await changed(lambda: rotate(holder, box))
        await asyncio.gather(own.run(), asyncio.wait_for(task, 30))
        return own

    assert asyncio.run(work()).received == 4 << 20


async def uploaded(holder: Caller, box: SandboxCaller) -> tuple[int | None, Any]:
    """Raw bytes of the control plane, whose sender sends no more."""
    upload = Upload(holder, "/file")
    upload.give(HALF)
    await until(lambda: partial(box.disk), 20)
    await changed(lambda: rotate(holder, box))
    return await upload.answer()


def test_an_upload_ends_with_its_credential_and_the_old_file_stays(
    box: SandboxCaller, holder: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming_body, "DRAIN_SECONDS", 0.1)
    (box.disk / "file").write_bytes(b"old")
    status, body = asyncio.run(uploaded(holder, box))
    assert (status, body["code"]) == (401, "unauthorized")
    assert "the credential is not valid any more" in body["message"]
    assert (box.disk / "file").read_bytes() == b"old"
    assert partial(box.disk) == []


def sandbox_command(holder: Caller, box: SandboxCaller, command: str) -> Request:
    return Request(
        f"/s/{box.sandbox_id}/terminal", {"Authorization": f"Bearer {box.token}"}, "POST", {"command": command}
    )


def workspace_command(holder: Caller, box: SandboxCaller, command: str) -> Request:
    return Request("/workspace/the-box/exec", holder.headers, "POST", {"cmd": command})


@pytest.mark.parametrize(
    ("begin", "end"), [(sandbox_command, regenerate), (workspace_command, rotate), (workspace_command, remove)]
)
def test_the_output_of_a_command_is_not_given_to_what_has_ended_while_it_ran(
    box: SandboxCaller,
    holder: Caller,
    tmp_path: Path,
    begin: Callable[..., Request],
    end: Callable[[Caller, SandboxCaller], None],
) -> None:
    command = f"touch {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; touch {tmp_path}/done"

    async def work() -> Request:
        request = begin(holder, box, command)
        running = asyncio.ensure_future(request.run())
        await until(lambda: (tmp_path / "begun").exists(), 20)
        await changed(lambda: end(holder, box))
        await asyncio.wait_for(running, 20)
        # The command itself goes on, as it does when its client leaves.
        (tmp_path / "go").touch()
        await until(lambda: (tmp_path / "done").exists(), 20)
        return request

    request = asyncio.run(work())
    assert (request.status, request.json()["code"]) == (401, "unauthorized")


def sent_to_the_sandbox(holder: Caller, box: SandboxCaller, content: str) -> Request:
    sent = {"Authorization": f"Bearer {box.token}"}
    return Request(f"/s/{box.sandbox_id}/files/upload", sent, "POST", {"filePath": "/file", "content": content})


def sent_as_json(holder: Caller, box: SandboxCaller, content: str) -> Request:
    return Request(FILES, holder.headers, "POST", {"path": "/file", "content": content})


@pytest.mark.parametrize(
    ("begin", "end", "reason"),
    [
        (sent_to_the_sandbox, regenerate, "the token was replaced"),
        (sent_as_json, rotate, "the credential is not valid any more"),
    ],
)
def test_what_a_slow_guest_is_still_writing_ends_with_what_began_it(
    box: SandboxCaller,
    holder: Caller,
    monkeypatch: pytest.MonkeyPatch,
    begin: Callable[..., Request],
    end: Callable[[Caller, SandboxCaller], None],
    reason: str,
) -> None:
    writing: list[Path] = []

    async def slow(*_: Any, **__: Any) -> int:
        writing.append(box.disk)
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(FakeGuestSession, "write", slow)

    async def work() -> Request:
        request = begin(holder, box, base64.b64encode(b"new").decode())
        running: Awaitable[None] = asyncio.ensure_future(request.run())
        await until(lambda: writing, 20)
        await changed(lambda: end(holder, box))
        await asyncio.wait_for(running, 30)
        return request

    request = asyncio.run(work())
    assert (request.status, request.json()["code"]) == (401, "unauthorized")
    assert reason in request.json()["message"]
