"""SSH into a real machine: with a key of the workspace and nothing else, switched while it runs and while not."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncssh
import pytest

from tests.vm.client import Api

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("clean")]
SECONDS = 20


def enter(access: dict[str, Any], key: asyncssh.SSHKey, command: str) -> str:
    """What a command prints; raises where the machine refuses the login."""

    async def run() -> str:
        known = asyncssh.import_known_hosts(
            f"[{access['host']}]:{access['port']},{access['host']} {access['host_key']}\n"
        )
        options: dict[str, Any] = {
            "client_keys": [key],
            "known_hosts": known,
            "username": access["user"],
            "config": None,
        }
        async with asyncssh.connect(access["host"], access["port"], connect_timeout=SECONDS, **options) as connection:
            ran = await connection.run(command, check=True, timeout=SECONDS)
            return str(ran.stdout).strip()

    return asyncio.run(run())


def refused(access: dict[str, Any], key: asyncssh.SSHKey) -> bool:
    try:
        enter(access, key, "true")
    except (OSError, asyncssh.Error):
        return True
    return False


def test_ssh_is_switched_and_its_keys_are_changed_at_once(api: Api) -> None:
    mine, others = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    made = api.create(env=[{"key": "GREETING", "value": "hello"}])["id"]
    path = f"/workspace/{made}/ssh"
    line = mine.export_public_key().decode().strip()
    assert api.call("POST", f"{path}/key", json={"public_key": line})["ssh"]["ssh_enabled"] is False
    access = api.call("POST", f"{path}/enable")["ssh"]
    assert (access["ssh_enabled"], access["applied"], access["port"]) == (True, True, 22)
    assert enter(access, mine, "echo $GREETING; hostname").splitlines()[0] == "hello"
    assert refused(access, others)
    assert api.call("POST", f"{path}/disable")["ssh"]["applied"] is True
    assert refused(access, mine)


def test_ssh_disabled_while_paused_stays_disabled_after_resume(api: Api) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    made = api.create(ssh_access=True)["id"]
    path = f"/workspace/{made}/ssh"
    access = api.call("POST", f"{path}/key", json={"public_key": key.export_public_key().decode()})["ssh"]
    assert enter(access, key, "echo in") == "in"
    api.power(made, "pause")
    assert api.call("POST", f"{path}/disable")["ssh"]["applied"] is False
    api.power(made, "resume")
    assert refused(access, key)
    api.call("POST", f"{path}/enable")
    api.power(made, "restart")
    assert enter(access, key, "echo in") == "in"
