"""A real registry for tests: Debian's docker-registry on a loopback port, in a separate directory."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.free_ports import free_port

CONFIG = {
    "version": "0.1",
    "log": {"level": "error", "accesslog": {"disabled": True}},
    "storage": {"filesystem": {}, "delete": {"enabled": True}},
    "http": {},
}


@contextlib.contextmanager
def running_registry(directory: Path, htpasswd: Path | None = None) -> Iterator[str]:
    """`host:port` of a registry that answers; it is always killed at the end."""
    address = f"127.0.0.1:{free_port()}"
    config = json.loads(json.dumps(CONFIG))
    config["storage"]["filesystem"]["rootdirectory"] = str(directory / "data")
    config["http"]["addr"] = address
    if htpasswd:
        config["auth"] = {"htpasswd": {"realm": "test", "path": str(htpasswd)}}
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.yml").write_text(json.dumps(config))
    with (directory / "log").open("wb") as log:
        argv = ["setpriv", "--pdeathsig", "KILL", "docker-registry", "serve", str(directory / "config.yml")]
        process = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        _wait(process, address)
        yield address
    finally:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], address: str) -> None:
    host, port = address.split(":")
    for _ in range(200):
        assert process.poll() is None, "the registry ended"
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.05)
    raise AssertionError("the registry does not answer")


def push(layout: Path, name: str, target: str, *options: str) -> None:
    """Push an image of an OCI layout to `host:port/name:tag`."""
    argv = ["skopeo", "copy", "--quiet", "--dest-tls-verify=false", *options]
    subprocess.run([*argv, f"oci:{layout}:{name}", f"docker://{target}"], check=True, capture_output=True)
