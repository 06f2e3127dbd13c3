"""Limits that many clients meet at once through the real servers, also where every second one breaks off."""

from __future__ import annotations

import json
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from threading import Barrier, Thread
from typing import Any

import pytest

from tests.served.requests import addresses, connected, head
from tests.vm.client import Api, until
from tests.vm.instances import TestInstance

MOST, AT_ONCE = 10, 100
# close() then resets the connection.
ABRUPT = struct.pack("ii", 1, 0)


@pytest.fixture
def team(client: Api) -> Iterator[str]:
    """A namespace with room for ten workspaces; empty and deleted at the end."""
    made = client.call("POST", "/namespaces", 201, json={"name": "Load", "resource_limits": {"max_workspaces": MOST}})
    slug = made["data"]["slug"]
    yield slug
    client.call("DELETE", f"/namespaces/{slug}", json={"deleteWorkspaces": True})
    until(lambda: not rows_in(client, slug), 60, "the workspaces are deleted")


def rows_in(client: Api, namespace: str) -> list[dict[str, Any]]:
    return [row for row in client.rows() if row["namespace"] == namespace]


def request_bytes(client: Api, namespace: str) -> tuple[bytes, bytes]:
    """Head and body of a create."""
    sizes = {"cpus": 0.1, "memory_mb": 128, "disk_size_mb": 64}
    body = {"image": "localhost/tiny:1", "namespace": namespace, "config": sizes, "wait_ready": False}
    data = json.dumps(body).encode()
    headers = {name: client.http.headers[name] for name in ("X-Client-ID", "X-Client-Secret")}
    headers |= {"Content-Type": "application/json", "Content-Length": str(len(data)), "Connection": "close"}
    return head("POST", "/workspace", headers) + b"\r\n", data


def status_of(connection: socket.socket) -> int:
    got = b""
    while more := connection.recv(65536):
        got += more
    return int(got.split()[1])


@pytest.mark.parametrize("breaks_off", [False, True])
def test_of_100_creates_at_once_a_namespace_gets_as_many_as_it_allows(
    served: TestInstance, client: Api, team: str, breaks_off: bool
) -> None:
    start, data = request_bytes(client, team)
    outcomes: Counter[int | str] = Counter()
    barrier = Barrier(AT_ONCE)

    def create(number: int) -> None:
        with connected(addresses(served)["edge"]) as connection:
            barrier.wait(30)
            if breaks_off and number % 2:
                connection.sendall(start + data[: len(data) // (1 if number % 4 == 1 else 2)])
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABRUPT)
                outcomes["broken off"] += 1
            else:
                connection.sendall(start + data)
                outcomes[status_of(connection)] += 1

    threads = [Thread(target=create, args=[number]) for number in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(outcomes) <= {202, 409, "broken off"}
    # What was sent whole may be carried out although its client is gone.
    made = until(lambda: len(rows_in(client, team)) == MOST and rows_in(client, team), 30, "ten are made")
    assert outcomes[202] == MOST if not breaks_off else outcomes[202] <= MOST
    client.create(expect=409, body={"namespace": team})
    until(lambda: all(row["status"] == "running" for row in rows_in(client, team)), 60, "each of them runs")
    # A create that was refused or broken off holds nothing: what is removed can be made again, and no more.
    client.call("DELETE", f"/workspace/{made[0]['id']}")
    until(lambda: len(rows_in(client, team)) == MOST - 1, 30, "one is deleted")
    client.create("localhost/tiny:1", body={"namespace": team}, cpus=0.1)
    client.create(expect=409, body={"namespace": team})
