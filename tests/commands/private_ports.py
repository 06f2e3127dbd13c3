"""A real Caddy, the answers of the platform about private ports, and a program that stands for one in a machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.db import connections
from django.test import Client

from edge.port_links import PARAMETER
from supervise.instance import load_instance
from tests.callers import Caller
from tests.commands.conftest import short_folder
from tests.commands.machines import World, open_world
from tests.free_ports import free_port
from tests.workspaces.rows import make_workspace
from workspaces.models import PublicPort

CLEAN = "/a?x=1"
LOG = "edge.log"


@contextmanager
def open_private_world() -> Iterator[World]:
    """For the tests of a module. Its lines go to a file, as those of an instance go to its log."""
    with short_folder() as folder, open_world(load_instance(folder / "edge", free_port()), log=LOG) as made:
        yield made


def asked(path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    """Return the platform's answer to a question of the edge."""
    try:
        answer: Any = Client().get(path, headers={name: value for name, value in headers.items() if name != "host"})
        return answer.status_code, dict(answer.items()), answer.content
    finally:
        connections.close_all()


def private_port(api: Caller, world: World) -> PublicPort:
    """A private port, whose program is the world's."""
    ip, number = world.machine.split(":")
    row = make_workspace(api.account, ip=ip, public_access=True, published_ports=1)
    return PublicPort.objects.create(workspace=row, port=int(number), access="private")


def cookie_of(world: World, port: PublicPort, secret: str) -> str:
    """The cookie that the link's address gives a browser."""
    answer = world.send("GET", f"{CLEAN}&{PARAMETER}={secret}", host=f"{port.hash}.localhost")
    assert (answer.status_code, answer.headers["location"]) == (303, CLEAN)
    return answer.headers["set-cookie"].partition(";")[0]


def raw(world: World, *lines: str) -> bytes:
    """The whole answer to a request that no client would send."""
    parts = urlsplit(world.base)
    with socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=60) as connection:
        connection.sendall(("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n").encode("latin-1"))
        data = b""
        while more := connection.recv(65536):
            data += more
    return data


def answered_world(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return the world as new; the platform answers the edge's questions as it does, with the key of this edge."""
    world.reset()
    monkeypatch.setattr(settings, "SECRET_KEY", world.instance.settings({}).secret_key)
    world.platform.answers["api"] = asked
    return world
