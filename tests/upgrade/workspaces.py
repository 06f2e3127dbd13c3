"""What is made with the earlier commit: workspaces in every state, a sandbox, a page, a file of the CDN."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import asyncssh
import httpx

from tests.vm.client import Api, until
from tests.vm.images import WEB
from tests.vm.test_ssh import enter
from tests.vm.web import Site, make_site

MARK = "/dev/shm/mark"
COUNT = "/dev/shm/count"
FILE = "/root/kept"
BOOT = "cat /proc/sys/kernel/random/boot_id"
HELPER = "/run/kit/bin/guest"
COUNTING = f"n=0; while sleep 1; do n=$((n+1)); echo $$ $n >{COUNT}.new; mv {COUNT}.new {COUNT}; echo count $n; done"
CONTENT = b"a file of the CDN\n" * 1000
PAGE = "<!doctype html>a page"


@dataclass
class Counted:
    """What a workspace's counter said last: its process, and how far it had come."""

    process: int
    count: int


@dataclass
class Workspaces:
    """Ids, and what was true of each machine before the upgrade."""

    site: Site
    key: asyncssh.SSHKey
    access: dict[str, Any]
    asleep: str
    paused: str
    stopped: str
    # Empty where the commit has none of these.
    sandbox: dict[str, Any]
    page: dict[str, Any]
    file: dict[str, Any]
    boots: dict[str, str] = field(default_factory=dict)
    counted: dict[str, Counted] = field(default_factory=dict)
    kit: str = ""
    credits: Decimal = Decimal(0)

    @property
    def running(self) -> str:
        return self.site.id

    @property
    def of_sandbox(self) -> str:
        found: str = self.sandbox["workspace_id"]
        return found


def make_workspaces(api: Api, base: str) -> Workspaces:
    """All of them run at the end; `settle_workspaces` follows, and what puts one to sleep."""
    counting = [{"name": "counter", "cmd": ["sh", "-c", COUNTING]}]
    site = make_site(api, base, workloads=counting, ssh_access=True)
    key = asyncssh.generate_private_key("ssh-ed25519")
    line = key.export_public_key().decode().strip()
    access = api.call("POST", f"/workspace/{site.id}/ssh/key", json={"public_key": line})["ssh"]
    assert enter(access, key, "echo in") == "in"
    asleep, paused = (api.create(workloads=counting)["id"] for _ in range(2))
    stopped = api.create()["id"]
    page, file = _publish_page(api, site.id), _publish_file(api)
    made = Workspaces(site, key, access, asleep, paused, stopped, _make_sandbox(api), page, file)
    made.kit = kit_of(api, site.id)
    for each in (made.running, asleep, paused, stopped):
        made.boots[each] = api.output(each, f"echo {each} >{MARK}; echo {each} >{FILE}; sync; {BOOT}")
    if made.sandbox:
        made.boots[made.of_sandbox] = run_in_sandbox(made.sandbox, f"echo {made.of_sandbox} >{MARK}; {BOOT}")
    for each in (made.running, asleep, paused):
        made.counted[each] = until(lambda each=each: counted(api, each), 30, "its program counts")
    return made


def counted(api: Api, workspace_id: str) -> Counted | None:
    """None: it has not begun."""
    answer = api.execute(workspace_id, ["cat", COUNT])
    if answer["exit_code"] != 0:
        return None
    return Counted(*map(int, answer["stdout"].split()))


def credits_of(api: Api) -> Decimal:
    """What the default namespace was charged so far."""
    return Decimal(str(api.call("GET", "/credits/namespaces/default")["data"]["usage"]["total_credits"]))


def kit_of(api: Api, workspace_id: str) -> str:
    """The hash of the kit's program as the running guest has it."""
    return api.output(workspace_id, ["sha256sum", HELPER]).split()[0]


def ask_sandbox(sandbox: dict[str, Any], route: str, **body: Any) -> dict[str, Any]:
    """What a route of the sandbox's address answers, by its token."""
    headers = {"Authorization": f"Bearer {sandbox['token']}"}
    answer = httpx.post(f"{sandbox['url']}/{route}", json=body, headers=headers, timeout=120, trust_env=False)
    assert answer.status_code == 200, f"{route}: {answer.text}"
    found: dict[str, Any] = answer.json()
    return found


def run_in_sandbox(sandbox: dict[str, Any], command: str) -> str:
    """What a command prints that succeeds."""
    ran = ask_sandbox(sandbox, "terminal", command=command)
    assert ran["exitCode"] == 0, ran
    printed: str = ran["output"].strip()
    return printed


def _has_route(api: Api, path: str) -> bool:
    return api.http.get(path).status_code == 200


def _make_sandbox(api: Api) -> dict[str, Any]:
    config = {"memory_mb": 128, "disk_size_mb": 64, "cpus": 1}
    body = {"name": "agent", "image": WEB, "config": config}
    if not _has_route(api, "/sandbox"):
        return {}
    made: dict[str, Any] = api.call("POST", "/sandbox", 201, json=body)["sandbox"]
    return made


def _publish_page(api: Api, workspace_id: str) -> dict[str, Any]:
    if not _has_route(api, "/pages"):
        return {}
    api.output(workspace_id, f"mkdir -p /srv/site && echo '{PAGE}' >/srv/site/index.html")
    body = {"workspace_id": workspace_id, "path": "/srv/site", "slug": "kept"}
    page: dict[str, Any] = api.call("POST", "/pages", 201, json=body)["page"]
    return page


def _publish_file(api: Api) -> dict[str, Any]:
    body = {"filename": "a.txt", "size": len(CONTENT), "contentType": "application/octet-stream"}
    if not _has_route(api, "/cdn/files"):
        return {}
    permit = api.call("POST", "/cdn/token", 201, json=body)
    sent = httpx.put(permit["uploadUrl"], content=CONTENT, timeout=120, trust_env=False)
    assert sent.is_success, sent.text

    def published() -> dict[str, Any] | None:
        file: dict[str, Any] = api.call("GET", f"/cdn/files/{permit['fileId']}")["file"]
        return file if file["status"] == "active" else None

    found: dict[str, Any] = until(published, 60, "the file is published")
    return found
