"""Downloads and uploads through the real servers end with what began them, whether their clients go on or not."""

from __future__ import annotations

import gzip
import os
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.served.requests import addresses, connected, head
from tests.vm.client import Api, until
from tests.vm.instances import TestInstance
from tests.workspaces.runtime.test_uploads import entry, tar

# More than any machine sends in the time of a test.
HUGE = 1 << 40
# What may be on its way between the servers and a client that does not read, with much to spare.
BUFFERED = 32 << 20
CHECKED = 2.0
LOG = "/var/log/workspace/cmd.log"
Change = Callable[[], object]


def huge_file(served: TestInstance, workspace_id: str) -> None:
    file = served.state / "machines/directories" / workspace_id / "disk" / LOG[1:]
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as opened:
        opened.truncate(HUGE)


def credential(client: Api) -> tuple[dict[str, str], Change]:
    """One of its own, and what rotates it."""
    made = client.call("POST", "/credentials", 201, json={"scope": "account"})
    headers = {"X-Client-ID": made["credential"]["client_id"], "X-Client-Secret": made["client_secret"]}
    return headers, lambda: client.call("POST", f"/credentials/{made['credential']['id']}/rotate")


def of_the_control_plane(client: Api, served: TestInstance, box: str) -> tuple[bytes, Change]:
    huge_file(served, box)
    headers, rotate = credential(client)
    path = f"/workspace/{box}/overlay/files?path={LOG}"
    return head("GET", path, {**headers, "Accept": "application/octet-stream"}) + b"\r\n", rotate


def of_a_log(client: Api, served: TestInstance, box: str) -> tuple[bytes, Change]:
    huge_file(served, box)
    headers, rotate = credential(client)
    return head("GET", f"/workspace/{box}/logs/file/cmd.log", {**headers, "Accept": "text/plain"}) + b"\r\n", rotate


def of_a_sandbox(client: Api, served: TestInstance, box: str) -> tuple[bytes, Change]:
    made = client.call("POST", "/sandbox", 201, json={"name": "Large", "image": "localhost/tiny:1"})["sandbox"]
    huge_file(served, made["id"].replace("sbx_", "ws_"))
    body = b'{"filePath": "%s"}' % LOG.encode()
    headers = {
        "Authorization": f"Bearer {made['token']}",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    }
    request = head("POST", f"{urlsplit(made['url']).path}/files/download", headers) + b"\r\n" + body
    return request, lambda: client.call("POST", f"/sandbox/{made['id']}/regenerate-token")


def rest_of(connection: socket.socket) -> int:
    """How many bytes still come, up to the end of the connection or to what no buffer has."""
    rest = 0
    try:
        while rest <= BUFFERED and (more := connection.recv(1 << 20)):
            rest += len(more)
    except ConnectionResetError:
        pass
    return rest


@pytest.mark.parametrize("where", ["edge", "streams"])
@pytest.mark.parametrize("begin", [of_the_control_plane, of_a_log, of_a_sandbox])
def test_a_client_gets_nothing_more_than_what_was_on_its_way(
    served: TestInstance,
    client: Api,
    box: str,
    where: str,
    begin: Callable[[Api, TestInstance, str], tuple[bytes, Change]],
) -> None:
    request, end = begin(client, served, box)
    with connected(addresses(served)[where]) as connection:
        connection.sendall(request)
        first = connection.recv(65536)
        assert first.startswith(b"HTTP/1.1 200 "), first
        for _ in range(20):
            assert connection.recv(1 << 20)
        end()
        # Not read: all that comes afterwards is what the servers had sent until they looked.
        time.sleep(CHECKED)
        assert rest_of(connection) < BUFFERED


def test_an_upload_is_refused_in_the_middle_and_leaves_nothing(served: TestInstance, client: Api, box: str) -> None:
    headers, rotate = credential(client)
    folder = Path(served.state / "machines/directories" / box / "disk/uploads")
    sent = {**headers, "Content-Type": "application/octet-stream", "Content-Length": str(1 << 30)}
    request = head("POST", f"/workspace/{box}/overlay/files?path=/uploads/file", sent) + b"\r\n"
    with connected(addresses(served)["streams"]) as connection:
        connection.sendall(request)
        connection.sendall(b"x" * (4 << 20))
        until(lambda: folder.is_dir() and any(folder.iterdir()), 20, "it reaches the guest")
        rotate()
        until(lambda: not any(folder.iterdir()), 20, "the part of a file is removed")
        # What its client may still send is waited for.
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 401 "), answer


@pytest.mark.skipif(shutil.which("busybox") is None, reason="needs busybox")
@pytest.mark.parametrize("how", ["rotated", "disabled"])
def test_an_archive_ends_with_its_token_and_leaves_no_half_file(served: TestInstance, client: Api, how: str) -> None:
    box = client.create("localhost/tiny:1")["id"]  # the other one's disk is full of huge files
    access = f"/workspace/{box}/runtime-api-access"
    made = client.call("POST", f"{access}/enable")
    folder = Path(served.state / "machines/directories" / box / "disk" / how)
    archive = tar(entry("whole", b"all of it"), entry("half", os.urandom(4 << 20)))
    sent = {
        "Authorization": f"Bearer {made['token']}",
        "Content-Length": str(1 << 30),
        "Content-Type": "application/gzip",
    }
    path = f"{urlsplit(made['url']).path}/files/transfer/upload?dest=/{how}"
    with connected(addresses(served)["streams"]) as connection:
        connection.sendall(head("POST", path, sent) + b"\r\n")
        connection.sendall(gzip.compress(archive)[: 2 << 20])
        until(lambda: (folder / "half").exists(), 20, "it reaches the guest")
        client.call("POST", f"{access}/token" if how == "rotated" else f"{access}/disable")
        until(lambda: not (folder / "half").exists(), 20, "the half file is removed")
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 401 "), answer
    assert (folder / "whole").read_bytes() == b"all of it"
