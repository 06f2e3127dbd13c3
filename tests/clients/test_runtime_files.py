"""Files of a runtime by the Python client: trees as they come, and archives both ways."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, get_type_hints
from urllib.parse import parse_qs, urlsplit

import pytest

from microvm import ApiError, AsyncMicrovm, ConnectionFailed, Microvm, MicrovmError, Retries
from microvm.aio.runtimes import AsyncOpenRuntime
from microvm.errors import InvalidRequest, NotFound
from microvm.sync.runtime_files import RuntimeFiles
from microvm.trees import TreeParser, TreeQuery
from microvm.types.runtime_files import RuntimeEntry
from tests.clients.cli.test_commands import answer
from tests.clients.cli.test_tasks import opens
from tests.clients.scripted_server import Script, ScriptedRequest, Step
from tests.openapi import document

ARCHIVE = bytes(range(256)) * 4096
START = {"event": "start", "path": "/w"}
ENTRIES = [{"name": "é", "path": "/w/é", "type": "file"}, {"name": "b", "path": "/w/b", "type": "directory"}]
DONE = {"event": "done", "count": 2, "truncated": False}
FAILED = {
    "event": "error", "success": False, "error": "search_failed", "code": "search_failed",
    "message": "The machine has too little memory.", "request_id": "req_1",
}  # fmt: skip
UNPACKED = {"success": True, "dest": "/srv", "files_extracted": 3, "skipped": 0}


@contextmanager
def opened_files(server: Script, *steps: Step) -> Iterator[RuntimeFiles]:
    server.steps = [opens(server), *steps]
    with Microvm(server.url, token="t", retries=Retries(attempts=3, first_wait=0.001)) as client:
        yield client.runtime("box", enable=True).files


@asynccontextmanager
async def opened_runtime(server: Script, *steps: Step) -> AsyncIterator[AsyncOpenRuntime]:
    server.steps = [opens(server), *steps]
    async with AsyncMicrovm(server.url, token="t", retries=Retries(attempts=3, first_wait=0.001)) as client:
        yield await client.runtime("box", enable=True)


def lines(*found: Any, cut: bool = False) -> Step:
    """A tree; with `cut` the connection ends before the body does."""

    def step(request: ScriptedRequest) -> None:
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in found).encode()
        length = {"Content-Length": "100000" if cut else str(len(text))}
        request.answer(200, {"Content-Type": "application/x-ndjson", **length}, text)

    return step


def archive_of(*, sent: int | None = None) -> Step:
    def step(request: ScriptedRequest) -> None:
        request.rfile.read(int(request.headers["Content-Length"]))
        headers = {"Content-Type": "application/gzip", "Content-Length": str(len(ARCHIVE))}
        request.answer(200, headers, ARCHIVE[:sent])

    return step


def lost(request: ScriptedRequest) -> None:
    request.close_connection = True


def received(bodies: list[bytes], then: Step) -> Step:
    """Keep a chunked body, and answer."""

    def step(request: ScriptedRequest) -> None:
        body = b""
        while size := int(request.rfile.readline(), 16):
            body += request.rfile.read(size)
            request.rfile.readline()
        request.rfile.readline()
        bodies.append(body)
        then(request)

    return step


def test_the_entries_of_a_tree_come_with_the_query_of_a_list(server: Script) -> None:
    with opened_files(server, lines(START, *ENTRIES, DONE)) as files:
        assert list(files.stream(path="/w", flatten=True, max_depth=3)) == ENTRIES
    method, path, headers = server.seen[1]
    assert (method, urlsplit(path).path, headers["authorization"]) == ("GET", "/r/files/stream", "Bearer rtg_x")
    assert parse_qs(urlsplit(path).query) == {"path": ["/w"], "flatten": ["true"], "max_depth": ["3"]}


def test_the_query_of_a_stream_is_that_of_the_description() -> None:
    described = document()["paths"]["/r/files/stream"]["get"]["parameters"]
    assert get_type_hints(TreeQuery).keys() == {each["name"] for each in described}


@pytest.mark.parametrize("end", [(), (FAILED,)], ids=["cut", "failed"])
def test_a_tree_that_is_not_whole_raises_after_what_came(server: Script, end: tuple[Any, ...]) -> None:
    found: list[RuntimeEntry] = []
    with opened_files(server, lines(START, *ENTRIES, *end, cut=True)) as files, pytest.raises(MicrovmError) as raised:
        found.extend(files.stream(path="/w"))
    assert found == ENTRIES
    if end:
        assert isinstance(raised.value, ApiError)
        assert (raised.value.code, raised.value.request_id) == ("search_failed", "req_1")
    else:
        assert isinstance(raised.value, ConnectionFailed)


def test_a_tree_without_its_last_line_is_not_whole(server: Script) -> None:
    for given in ([START, *ENTRIES], [], [[1]], ["text"]):
        with opened_files(server, lines(*given)) as files, pytest.raises(ConnectionFailed):
            list(files.stream())


def test_lines_are_read_however_they_are_cut() -> None:
    text = b"".join(json.dumps(line).encode() + b"\n" for line in (START, *ENTRIES, DONE))
    for size in (1, 7, len(text)):
        parser = TreeParser()
        parts = [text[at : at + size] for at in range(0, len(text), size)]
        assert [entry for part in parts for entry in parser.entries_in(part)] == ENTRIES
        parser.finish()


def test_an_archive_comes_whole_or_raises(server: Script) -> None:
    sink = io.BytesIO()
    with opened_files(server, lost, archive_of()) as files:
        assert files.download(["/w"], sink, exclude_patterns=["*.log"]) == len(ARCHIVE)
    assert sink.getvalue() == ARCHIVE
    missing = answer(404, {"code": "path_not_found", "message": "No."})
    with opened_files(server, archive_of(sent=1000), missing) as files:
        with pytest.raises(ConnectionFailed, match="after 1000 bytes"):
            files.download(["/w"], io.BytesIO())
        with pytest.raises(NotFound):
            files.download(["/none"], sink)
    assert sink.getvalue() == ARCHIVE


def test_an_archive_is_sent_again_from_where_it_began(server: Script) -> None:
    bodies: list[bytes] = []
    source = io.BytesIO(b"before" + ARCHIVE)
    source.seek(6)
    with opened_files(server, lost, received(bodies, answer(200, UNPACKED))) as files:
        assert files.upload(source, dest="/srv") == UNPACKED
    assert bodies == [ARCHIVE]
    assert [path for _, path, _ in server.seen[1:]] == ["/r/files/transfer/upload?dest=%2Fsrv"] * 2
    assert server.seen[2][2]["content-type"] == "application/gzip"


def test_a_pipe_is_sent_once(server: Script) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    with opened_files(server, lost, answer(200, UNPACKED)) as files, pytest.raises(ConnectionFailed):
        files.upload(Pipe(ARCHIVE))
    assert len(server.seen) == 2


def test_what_was_unpacked_before_an_error_is_told(server: Script) -> None:
    body = {"code": "archive_invalid", "message": "It is no tar.", "details": {"files_extracted": 2}}
    with opened_files(server, received([], answer(400, body))) as files, pytest.raises(InvalidRequest) as raised:
        files.upload(io.BytesIO(ARCHIVE))
    assert (raised.value.code, raised.value.details) == ("archive_invalid", {"files_extracted": 2})


def test_coroutines_do_the_same(server: Script) -> None:
    bodies: list[bytes] = []

    async def used() -> None:
        steps = [lines(START, *ENTRIES, DONE), archive_of(), lost, received(bodies, answer(200, UNPACKED))]
        async with opened_runtime(server, *steps) as runtime:
            assert [entry async for entry in runtime.files.stream(path="/w")] == ENTRIES
            sink = io.BytesIO()
            assert await runtime.files.download(["/w"], sink) == len(ARCHIVE)
            sink.seek(0)
            assert await runtime.files.upload(sink, dest="/srv") == UNPACKED

    asyncio.run(used())
    assert bodies == [ARCHIVE]
