"""Files of the Python client, up and down, over connections that break off."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from microvm import AsyncMicrovm, ConnectionFailed, Microvm, Retries
from microvm.errors import NotFound
from tests.clients.scripted_server import ScriptedRequest, Step, scripted_server

FAST = Retries(attempts=3, first_wait=0.001)
CONTENT = bytes(range(256)) * 4096


def client_at(url: str) -> Microvm:
    return Microvm(url, client_id="id", client_secret="secret", retries=FAST)


def file_of(content: bytes, tag: str, *, sent: int | None = None) -> Step:
    """The whole file; with `sent` it breaks off after so many bytes."""

    def step(request: ScriptedRequest) -> None:
        headers = {"Content-Length": str(len(content)), "ETag": f'"{tag}"'}
        request.answer(200, headers, content[:sent])

    return step


def rest_of(content: bytes, tag: str, *, sent: int | None = None) -> Step:
    """The range that is asked for; with `sent` it breaks off after so many bytes of it."""

    def step(request: ScriptedRequest) -> None:
        begin = int(request.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        assert request.headers["If-Range"] == f'"{tag}"'
        headers = {
            "Content-Length": str(len(content) - begin),
            "Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}",
            "ETag": f'"{tag}"',
        }
        request.answer(206, headers, content[begin:][:sent])

    return step


def stored(request: ScriptedRequest) -> None:
    length = int(request.headers["Content-Length"])
    received = request.rfile.read(length)
    body = b'{"success": true, "path": "/a", "size": %d}' % len(received)
    request.answer(200, {"Content-Length": str(len(body)), "X-Same": str(received == CONTENT)}, body)


def broken_upload(request: ScriptedRequest) -> None:
    request.rfile.read(1000)
    request.close_connection = True


def test_a_download_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    steps = [file_of(CONTENT, "a", sent=600_000), rest_of(CONTENT, "a", sent=300_000), rest_of(CONTENT, "a")]
    with scripted_server(*steps) as script, client_at(script.url) as client:
        size = client.files.download(
            "one", "/a b", tmp_path / "a", progress=lambda done, total: seen.append((done, total))
        )
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert (size, seen[-1]) == (len(CONTENT), (len(CONTENT), len(CONTENT)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(script.seen) == 3
    assert script.seen[0][1] == "/workspace/one/overlay/files?path=%2Fa+b"


def test_a_file_that_changed_is_downloaded_from_its_beginning(tmp_path: Path) -> None:
    other = CONTENT[::-1]
    steps = [file_of(CONTENT, "a", sent=600_000), file_of(other, "b")]
    with scripted_server(*steps) as script, client_at(script.url) as client:
        client.files.download("one", "/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == other


def test_a_failed_download_leaves_the_target_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("before")
    steps = [file_of(CONTENT, "a", sent=1000), *[rest_of(CONTENT, "a", sent=0)] * 3]
    with scripted_server(*steps) as script, client_at(script.url) as client:
        with pytest.raises(ConnectionFailed, match="broke off after 1000 bytes"):
            client.files.download("one", "/a", tmp_path / "a")
        with pytest.raises(NotFound):
            client.files.download("one", "/a", tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "before"


def test_an_upload_is_streamed_with_its_progress_and_sent_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(CONTENT)
    seen: list[tuple[int, int | None]] = []
    with scripted_server(broken_upload, stored) as script, client_at(script.url) as client:
        written = client.files.upload(
            "one", "/a", tmp_path / "a", progress=lambda done, total: seen.append((done, total))
        )
    assert written["size"] == len(CONTENT)
    assert seen[-4:] == [(part * (256 << 10), len(CONTENT)) for part in range(1, 5)]
    assert [headers["content-length"] for _, _, headers in script.seen] == [str(len(CONTENT))] * 2


def test_coroutines_transfer_files_alike(tmp_path: Path) -> None:
    async def both(url: str) -> bytes:
        async with AsyncMicrovm(url, client_id="i", client_secret="s", retries=FAST) as client:
            assert (await client.files.write("one", "/a", CONTENT))["size"] == len(CONTENT)
            return await client.files.read("one", "/a")

    steps = [broken_upload, stored, file_of(CONTENT, "a", sent=5000), rest_of(CONTENT, "a")]
    with scripted_server(*steps) as script:
        assert asyncio.run(both(script.url)) == CONTENT


def test_an_empty_file_is_transferred(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with scripted_server(stored, file_of(b"", "a")) as script, client_at(script.url) as client:
        assert client.files.upload("one", "/a", str(tmp_path / "empty"))["size"] == 0
        assert client.files.download("one", "/a", str(tmp_path / "down")) == 0
    assert (tmp_path / "down").read_bytes() == b""
