"""What an image of the trials is made of, and how it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Probe:
    """Bytes that are sent to a port, and bytes that the answer has. Servers that speak first are sent nothing."""

    port: int
    send: bytes = b""
    expect: bytes = b""


def web(port: int, expect: str = "200", path: str = "/") -> Probe:
    """A page; by default any that is there."""
    request = f"GET {path} HTTP/1.1\r\nHost: trial\r\nConnection: close\r\n\r\n"
    return Probe(port, request.encode(), expect.encode())


@dataclass(frozen=True)
class Recipe:
    """`config` is the configuration as the official image has it, in OCI's spelling.

    On Debian's base layer, unless it is `bare`: a layer with `packages`, then one with `files` (text with `#!` is
    executable), what `commands` do (shell, in the image), and whiteouts of the packages' documentation. A bare image
    has programs of the trials and `files`, and nothing else.
    """

    name: str
    probe: Probe
    config: Mapping[str, Any]
    packages: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    commands: str = ""
    bare: Mapping[str, str] | None = None  # path in the image -> program of the trials: busybox or web
    env: Mapping[str, str] = field(default_factory=dict)  # of the workspace
    ended: str = ""  # what the program prints when its own signal has ended it
    nested: bool = False  # published as an index in an index
    memory_mb: int = 256
    disk_mb: int = 1024
    seconds: float = 60.0  # until it answers, on a quiet host with emulation


def configuration(
    command: list[str],
    *,
    entrypoint: list[str] | None = None,
    env: tuple[str, ...] = (),
    **fields: Any,
) -> dict[str, Any]:
    """The configuration of an image: `Cmd`, `Entrypoint`, `Env` with a PATH, and further fields."""
    return {"Env": [PATH, *env], "Cmd": command, **({"Entrypoint": entrypoint} if entrypoint else {}), **fields}
