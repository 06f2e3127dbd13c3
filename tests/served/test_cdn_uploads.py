"""Uploads into a whole instance: public tus clients, bodies that end early, streams that is killed, what is logged."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from tusclient import client as tus
from tusclient.exceptions import TusCommunicationError

from supervise.configuration import process_environment
from supervise.instance import ROOT
from tests.served.requests import addresses, connected, cut_off, head
from tests.vm.client import Api, until
from tests.vm.instances import TestInstance

DATA = os.urandom(3 << 20)
# A lease that a killed process held runs out after 30 s.
TAKEN_OVER = 60.0


def permit(client: Api, size: int) -> dict[str, Any]:
    body = {"filename": "a.bin", "size": size, "contentType": "application/octet-stream"}
    return client.call("POST", "/cdn/token", 201, json=body)


def stored(served: TestInstance, file_id: str) -> tuple[str, int, str]:
    """Status, size and hash by the row."""
    rows = served.query(f"SELECT status, size, sha256 FROM cdn_file WHERE id = '{file_id}'")
    return rows[0][0], rows[0][1], rows[0][2]


def assert_received(served: TestInstance, file_id: str, data: bytes) -> None:
    """All of it, and nothing else."""
    status, size, digest = stored(served, file_id)
    assert (size, digest) == (len(data), sha256(data).hexdigest())
    assert status in ("processing", "active")


def offset_of(url: str) -> int | None:
    answer = httpx.head(url, headers={"Tus-Resumable": "1.0.0"}, trust_env=False, timeout=120)
    return int(answer.headers["upload-offset"]) if answer.status_code == 200 else None


def uploader(url: str, data: bytes, chunk: int) -> Any:
    return tus.TusClient(url).uploader(file_stream=io.BytesIO(data), url=url, chunk_size=chunk)


@pytest.mark.parametrize("chunk", [len(DATA), 1 << 20, 300_001])
def test_the_public_tus_client_uploads(served: TestInstance, client: Api, chunk: int) -> None:
    made = permit(client, len(DATA))
    uploader(made["uploadUrl"], DATA, chunk).upload()
    assert_received(served, made["fileId"], DATA)
    assert offset_of(made["uploadUrl"]) == len(DATA)


def test_the_public_tus_client_uploads_an_empty_file(served: TestInstance, client: Api) -> None:
    made = permit(client, 0)
    uploader(made["uploadUrl"], b"", 1 << 20).upload()
    assert_received(served, made["fileId"], b"")
    until(
        lambda: client.call("GET", f"/cdn/files/{made['fileId']}")["file"]["status"] == "active",
        60,
        "the empty file is published",
    )


def test_the_public_tus_client_resumes(served: TestInstance, client: Api) -> None:
    made = permit(client, len(DATA))
    first = uploader(made["uploadUrl"], DATA, 1 << 20)
    first.upload_chunk()
    again = uploader(made["uploadUrl"], DATA, 1 << 20)
    assert again.offset == 1 << 20
    again.upload()
    assert_received(served, made["fileId"], DATA)


def test_curl_uploads_a_file(served: TestInstance, client: Api, tmp_path: Path) -> None:
    """It waits to be asked for a large body (Expect: 100-continue)."""
    made = permit(client, len(DATA))
    (tmp_path / "f").write_bytes(DATA)
    command = ["curl", "-sS", "-T", str(tmp_path / "f"), "-H", "Expect: 100-continue", made["uploadUrl"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert '"success":true' in done.stdout.replace(" ", "")
    assert_received(served, made["fileId"], DATA)


def test_a_body_that_is_too_large_is_refused_by_its_length(served: TestInstance, client: Api, tmp_path: Path) -> None:
    """What its client sends until it reads the refusal is dropped, within bounds."""
    made = permit(client, 1000)
    with (tmp_path / "f").open("wb") as file:
        file.truncate(3 << 30)
    command = ["curl", "-sS", "-T", str(tmp_path / "f"), "-w", "\n%{size_upload} %{http_code}", made["uploadUrl"]]
    for more in ([], ["-H", "Expect:"]):
        done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=120, check=False)
        assert '"payload_too_large"' in done.stdout, done
        sent, status = done.stdout.rsplit("\n", 1)[1].split()
        assert (status, int(sent) < 128 << 20) == ("413", True)
    assert offset_of(made["uploadUrl"]) == 0


@pytest.mark.parametrize("where", ["edge", "streams"])
@pytest.mark.parametrize("announced", [f"Content-Length: {len(DATA)}\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"])
def test_a_body_that_ends_early_is_no_file_and_can_be_resumed(
    served: TestInstance, client: Api, where: str, announced: str
) -> None:
    made = permit(client, len(DATA))
    path, part = urlsplit(made["uploadUrl"]).path, DATA[:1_000_000]
    body = f"{len(part):x}\r\n".encode() + part + b"\r\n" if "chunked" in announced else part
    status, answer = cut_off(addresses(served)[where], head("PUT", path, {}) + announced.encode() + body)
    if where == "edge":
        assert (status, answer["code"]) == (400, "invalid_json")
    until(lambda: offset_of(made["uploadUrl"]) == len(part), 20, "what came is kept")
    assert stored(served, made["fileId"])[0] == "uploading"
    headers = {"Upload-Offset": str(len(part)), "Content-Type": "application/offset+octet-stream"}
    answer = httpx.patch(made["uploadUrl"], content=DATA[len(part) :], headers=headers, trust_env=False, timeout=120)
    assert answer.status_code == 204, answer.text
    assert_received(served, made["fileId"], DATA)


def test_a_second_writer_is_refused_while_the_first_sends(served: TestInstance, client: Api) -> None:
    made = permit(client, len(DATA))
    path = urlsplit(made["uploadUrl"]).path
    with connected(addresses(served)["edge"]) as first:
        first.sendall(head("PUT", path, {"Content-Length": str(len(DATA))}) + b"\r\n" + DATA[:1000])
        until(lambda: _state(served, made["fileId"]) == "receiving", 20, "the first one has the lease")
        answer = httpx.put(made["uploadUrl"], content=DATA[::-1], trust_env=False, timeout=120)
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        first.sendall(DATA[1000:])
        assert b" 20" in first.recv(65536)[:13]
    assert_received(served, made["fileId"], DATA)


def _state(served: TestInstance, file_id: str) -> str:
    return str(served.query(f"SELECT state FROM cdn_permit WHERE file_id = '{file_id}'")[0][0])


def managed(served: TestInstance, *arguments: str) -> str:
    """What a management command prints."""
    command = [sys.executable, "manage.py", *arguments]
    environment = process_environment(served.instance, served.settings)
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def second_account(served: TestInstance) -> Api:
    made = json.loads(managed(served, "account_create", f"cdn-{time.time_ns()}", "--json"))
    return Api(served.settings.base_url, made["client_id"], made["client_secret"])


def send_patiently(url: str, data: bytes, ended: threading.Event) -> None:
    """As tus clients do that try again: the offset, then the rest of it from there, at some MiB a second."""

    def pieces(offset: int) -> Any:
        for start in range(offset, len(data), 100_000):
            yield data[start : start + 100_000]
            time.sleep(0.02)

    deadline = time.monotonic() + 2 * TAKEN_OVER
    while time.monotonic() < deadline:
        try:
            offset = offset_of(url)
            if offset == len(data):
                ended.set()
                return
            headers = {"Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream"}
            httpx.patch(url, content=pieces(offset or 0), headers=headers, trust_env=False, timeout=120)
        except (httpx.TransportError, TusCommunicationError):
            pass
        time.sleep(0.5)


@pytest.mark.campaign
def test_two_accounts_upload_while_streams_is_killed(served: TestInstance, client: Api) -> None:
    accounts = [client, second_account(served)]
    contents = [os.urandom(24 << 20) for _ in accounts]
    permits = [permit(account, len(data)) for account, data in zip(accounts, contents, strict=True)]
    ended = [threading.Event() for _ in accounts]
    threads = [
        threading.Thread(target=send_patiently, args=(made["uploadUrl"], data, event))
        for made, data, event in zip(permits, contents, ended, strict=True)
    ]
    for thread in threads:
        thread.start()
    time.sleep(2.5)
    for _ in range(2):
        before = [stored(served, made["fileId"])[0] for made in permits]
        assert before == ["uploading"] * 2
        served.kill("streams")
        time.sleep(2.5)
    for thread in threads:
        thread.join(3 * TAKEN_OVER)
    assert all(event.is_set() for event in ended)
    for made, data in zip(permits, contents, strict=True):
        assert_received(served, made["fileId"], data)
    for account, made in zip(accounts, permits, strict=True):
        until(lambda a=account, m=made: is_active(a, m["fileId"]), 60, "it is published")
    assert "Counters, rows and stored bytes agree." in managed(served, "cdn_check")


def is_active(client: Api, file_id: str) -> bool:
    return bool(client.call("GET", f"/cdn/files/{file_id}")["file"]["status"] == "active")


def test_a_server_that_stops_gives_the_lease_back(served: TestInstance, client: Api) -> None:
    made = permit(client, len(DATA))
    path = urlsplit(made["uploadUrl"]).path
    with connected(addresses(served)["edge"]) as first:
        first.sendall(head("PUT", path, {"Content-Length": str(len(DATA))}) + b"\r\n" + DATA[:500_000])
        until(lambda: _state(served, made["fileId"]) == "receiving", 20, "it has the lease")
        time.sleep(0.5)
        os.kill(served.pids()["streams"], signal.SIGTERM)
        until(lambda: _state(served, made["fileId"]) == "open", 25, "the lease is given back before it runs out")
    # A piece that was not complete is not stored.
    kept = until(lambda: offset_of(made["uploadUrl"]), 30, "streams is back")
    assert 240 * 1024 <= kept <= 500_000


def test_a_page_of_any_origin_may_upload_and_reads_errors_of_the_edge(served: TestInstance, client: Api) -> None:
    made = permit(client, 10)
    asked = httpx.options(made["uploadUrl"], headers={"Origin": "https://other.example"}, trust_env=False)
    assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, "*")
    path = served.instance.run_dir / "streams.sock"
    away = path.rename(path.with_name("away.sock"))
    try:
        answer = httpx.put(made["uploadUrl"], content=b"x", trust_env=False, timeout=120)
        asked = httpx.options(made["uploadUrl"], trust_env=False, timeout=120)
    finally:
        away.rename(path)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (503, "*")
    assert (asked.status_code, "PATCH" in asked.headers["access-control-allow-methods"]) == (204, True)


def test_no_log_has_the_secret_of_an_address(served: TestInstance, client: Api) -> None:
    """Also where the edge, or streams, has an error to log."""
    made = permit(client, len(DATA))
    path = urlsplit(made["uploadUrl"]).path
    with connected(addresses(served)["edge"]) as first:
        first.sendall(head("PUT", path, {"Content-Length": str(len(DATA))}) + b"\r\n" + DATA[:500_000])
        until(lambda: _state(served, made["fileId"]) == "receiving", 20, "it has the lease")
        served.kill("streams")
    cut_off(addresses(served)["edge"], head("PUT", path, {"Content-Length": "12"}) + b"\r\nabc")
    with suppress(httpx.TransportError):  # refused, and closed with its body unread
        httpx.put(made["uploadUrl"], content=b"x" * 20, headers={"Content-Type": "\x7f"}, trust_env=False)
    until(lambda: offset_of(made["uploadUrl"]) is not None, 20, "streams is back")
    for log in [*served.state.rglob("*.log*"), *served.instance.run_dir.glob("*.out")]:
        assert made["token"].encode() not in log.read_bytes(), log


def test_an_address_is_not_looked_up_by_a_socket(served: TestInstance, client: Api) -> None:
    made = permit(client, 10)
    request = "GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    with socket.create_connection(addresses(served)["edge"], timeout=120) as connection:  # type: ignore[arg-type]
        connection.sendall(request.format(urlsplit(made["uploadUrl"]).path).encode())
        assert connection.recv(1000).split()[1] in (b"400", b"403", b"404", b"405")
