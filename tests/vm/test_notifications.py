"""Code in a real machine sends a notification with plain curl.

A machine reaches public addresses alone, so the platform is given one: a relay in the network that stands for the
internet, as an instance in production has an address there.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.notifications.browsers import push_service
from tests.vm.client import Api, until
from tests.vm.images import add_image, busybox_root, has_image
from tests.vm.instances import TestInstance
from tests.vm.outside import Outside, outside

pytestmark = pytest.mark.vm

CURL = "localhost/tests-curl:1"
PORT = 8000
# In the other network: what connects to the port is joined with a socket of the file system, which both networks share.
RELAY = """
import socket, sys, threading
def copy(a, b):
    while data := a.recv(65536):
        b.sendall(data)
    b.shutdown(socket.SHUT_WR)
listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
while True:
    here, _ = listener.accept()
    there = socket.socket(socket.AF_UNIX)
    there.connect(sys.argv[2])
    threading.Thread(target=copy, args=(here, there), daemon=True).start()
    threading.Thread(target=copy, args=(there, here), daemon=True).start()
"""


def add_curl(store: Path, root: Path) -> None:
    """The host's curl with the libraries that it loads, beside busybox."""
    if has_image(store, CURL):
        return
    busybox_root(root)
    program = shutil.which("curl")
    assert program
    shutil.copy(program, root / "bin/curl")
    for line in subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.splitlines():
        found = next((word for word in line.split() if word.startswith("/")), None)
        if found:
            (root / found.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, root / found.lstrip("/"))
    add_image(store, CURL, root)


@contextmanager
def platform_outside(instance: TestInstance, place: Outside, folder: Path) -> Iterator[str]:
    """The platform's edge at an address of the other network; the URL."""
    path = folder / "relay.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(8)
    threading.Thread(target=_join_edge, args=(listener, instance.settings.port), daemon=True).start()
    inside = ("setpriv", "--pdeathsig", "KILL", "nsenter", "-t", str(place.pid), "-n")
    with subprocess.Popen([*inside, sys.executable, "-c", RELAY, str(PORT), str(path)]) as relay:
        try:
            yield f"http://{place.address}:{PORT}"
        finally:
            relay.kill()
            listener.close()


def _join_edge(listener: socket.socket, port: int) -> None:
    while True:
        try:
            here, _ = listener.accept()
        except OSError:
            return
        there = socket.create_connection(("127.0.0.1", port))
        for pair in ((here, there), (there, here)):
            threading.Thread(target=_copy, args=pair, daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


def test_code_in_a_machine_sends_with_curl(
    instance: TestInstance, api: Api, push_port: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    add_curl(Path(instance.settings.images_dir) / "oci", tmp_path_factory.mktemp("curl"))
    made = api.create(CURL)
    token = api.call("POST", "/notifications/tokens", 201, json={"workspace_id": made["id"]})["token"]["token"]
    with push_service(push_port) as browsers, outside(instance.id) as place:
        subscription = browsers.subscriber("tab").subscription
        body = {"device_id": "tab", "platform": "web", "web_push": subscription}
        api.call("POST", "/notifications/devices", 201, json=body)
        with platform_outside(instance, place, tmp_path_factory.mktemp("r")) as url:
            command = (
                f"curl -sS --max-time 20 -H 'Host: 127.0.0.1' -H 'Authorization: Bearer {token}' "
                f"-H 'Content-Type: application/json' -d '{{\"title\": \"From inside\"}}' {url}/notifications/send"
            )
            answer = until(lambda: answered(api, made["id"], command), 30, "curl is answered")
        assert (answer["delivered"], answer["failed"], answer["devices"]) == (1, 0, 1)
        (shown,) = browsers.arrived["tab"]
        assert shown == {"title": "From inside", "data": {"workspace_id": made["id"], "channel": "workspace"}}
    api.delete(made["id"])


def answered(api: Api, workspace_id: str, command: str) -> dict[str, int] | None:
    """What curl prints; None while the relay does not listen yet."""
    ran = api.call("POST", f"/workspace/{workspace_id}/exec", json={"cmd": command})
    if ran["exit_code"] == 7:
        return None
    assert ran["exit_code"] == 0, ran
    found: dict[str, int] = json.loads(ran["stdout"])
    assert "delivered" in found, found
    return found
