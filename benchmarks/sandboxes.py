"""What the benchmarks of sandboxes share: sandboxes of the measured instance, and plain SSH to their guests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import asyncssh
import httpx

from benchmarks.common import STATE, Instance
from vmbackend.guest.bootconfig import CONTROL_PORT
from vmbackend.guest.ssh_limits import ALGORITHMS


@dataclass(frozen=True)
class Sandbox:
    """A running sandbox: its address, the headers of its calls, and its guest's address."""

    url: str
    headers: dict[str, str]
    ip: str
    workspace_id: str = ""

    async def ssh(self) -> asyncssh.SSHClientConnection:
        """As the platform itself connects; a command's way is that of every command."""
        key = str(STATE / "keys/control_ed25519")
        return await asyncssh.connect(
            self.ip, CONTROL_PORT, username="root", client_keys=[key], known_hosts=None, config=None, **ALGORITHMS
        )


@contextmanager
def running_sandbox(instance: Instance, memory: int, **config: int) -> Iterator[Sandbox]:
    """A sandbox with `memory` MiB; deleted at the end."""
    with instance.client() as client:
        body = {"name": "bench", "image": instance.image, "config": {"memory_mb": memory, **config}}
        made = client.post("/sandbox", json=body)
        made.raise_for_status()
        row = made.json()["sandbox"]
        headers = {"Authorization": f"Bearer {row['token']}"}
        try:
            shown = command_run(row["url"], headers, "ip -4 -o addr show scope global")
            address = re.search(r"inet ([\d.]+)/", shown)
            if address is None:
                raise SystemExit(f"the guest shows no address: {shown}")
            yield Sandbox(row["url"], headers, address[1], row["workspace_id"])
        finally:
            client.delete(f"/sandbox/{row['id']}").raise_for_status()


def command_run(url: str, headers: dict[str, str], command: str) -> str:
    """The output of a command that must succeed."""
    answer = httpx.post(
        f"{url}/terminal", json={"command": command, "timeout": 600_000}, headers=headers, timeout=660, trust_env=False
    )
    answer.raise_for_status()
    body = answer.json()
    if body["exitCode"] != 0:
        raise SystemExit(f"{command}: {body}")
    output: str = body["output"]
    return output
