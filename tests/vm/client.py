"""The API as a client reaches it: through the edge, with the demo account's credential."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

import httpx

from tests.vm.images import BUSYBOX

# States in which an operation is in flight; a workspace settles in any other.
IN_BETWEEN = frozenset(
    {
        *("queued", "creating", "starting", "stopping", "restarting", "pausing", "resuming", "suspending"),
        *("waking", "reinstalling", "resizing", "restoring", "moving", "deleting"),
    }
)
# A process that restarts may cost a request; nothing may take longer than this to serve again.
PATIENCE_SECONDS = 30.0
# Limits are those of a hang: beside other work everything takes several times as long.
BUSY = 4
ANSWER_SECONDS = 300.0


def until(condition: Callable[[], Any], seconds: float, what: str, *, busy: float = BUSY) -> Any:
    """The condition's first true value; fails the test with `what` where it does not come.

    `seconds` is more than it takes on a host that has nothing else to do; it may take `busy` times as long.
    """
    limit, pause = seconds * busy, 0.05
    deadline = time.monotonic() + limit
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {limit:.0f} s: {what}"
        time.sleep(pause)
        pause = min(0.4, 1.5 * pause)  # what is looked at competes with those who look
    return found


class Api:
    """One account's client. Threads may share it."""

    def __init__(self, base_url: str, client_id: str, secret: str) -> None:
        headers = {"X-Client-ID": client_id, "X-Client-Secret": secret}
        limits = httpx.Limits(max_connections=200)
        self.http = httpx.Client(
            base_url=base_url, headers=headers, timeout=ANSWER_SECONDS, trust_env=False, limits=limits
        )

    def call(self, method: str, path: str, expect: int = 200, **request: Any) -> dict[str, Any]:
        """The response's body; fails the test with it where the status differs."""
        response = self.http.request(method, path, **request)
        assert response.status_code == expect, f"{method} {path}: {response.status_code} {response.text[:2000]}"
        body: dict[str, Any] = response.json()
        assert body["success"] is (expect < 400)
        return body

    def patiently(self, method: str, path: str, expect: int = 200, **request: Any) -> dict[str, Any]:
        """The same while processes restart: a refused connection, 502 to 504 and a truncated response are retried."""

        def tried() -> httpx.Response | None:
            try:
                response = self.http.request(method, path, **request)
            except httpx.TransportError:
                return None
            return None if response.status_code in (502, 503, 504) else response

        response = until(tried, PATIENCE_SECONDS, f"{method} {path} is answered")
        assert response.status_code == expect, f"{method} {path}: {response.status_code} {response.text[:2000]}"
        body: dict[str, Any] = response.json()
        return body

    def create(self, image: str = BUSYBOX, *, expect: int = 201, body: Any = None, **config: Any) -> dict[str, Any]:
        """Create a small workspace and return it (of a 4xx or 5xx: the error's body)."""
        config = {"memory_mb": 128, "disk_size_mb": 64, "cpus": 1, **config}
        answer = self.call(
            "POST", "/workspace", expect, json={"image": image, "config": config, "mode": "permanent", **(body or {})}
        )
        found: dict[str, Any] = answer.get("workspace", answer)
        return found

    def begin_create(self, image: str = BUSYBOX, **config: Any) -> str:
        """Create without waiting; the workspace's id."""
        made: str = self.create(image, expect=202, body={"wait_ready": False}, **config)["id"]
        return made

    def get(self, workspace_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.patiently("GET", f"/workspace/{workspace_id}")["workspace"]
        return found

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.patiently("GET", "/workspace", params={"limit": 100})["workspaces"]
        return rows

    def execute(self, workspace_id: str, cmd: str | list[str], expect: int = 200, **fields: Any) -> dict[str, Any]:
        return self.call("POST", f"/workspace/{workspace_id}/exec", expect, json={"cmd": cmd, **fields})

    def output(self, workspace_id: str, cmd: str | list[str], **fields: Any) -> str:
        """The output of a command that succeeds."""
        answer = self.execute(workspace_id, cmd, **fields)
        assert answer["exit_code"] == 0, answer
        printed: str = answer["stdout"].strip()
        return printed

    def power(self, workspace_id: str, what: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("POST", f"/workspace/{workspace_id}/{what}")["workspace"]
        return found

    def reaches(self, workspace_id: str, *wanted: str, seconds: float = 60) -> dict[str, Any]:
        """Wait for one of these states; fails at once where the workspace settles in another."""

        def looked() -> dict[str, Any] | None:
            row = self.get(workspace_id)
            assert row["status"] in {*wanted, *IN_BETWEEN}, (row["status"], row["info"], row["provisioning"])
            return row if row["status"] in wanted else None

        found: dict[str, Any] = until(looked, seconds, f"{workspace_id} becomes {' or '.join(wanted)}")
        return found

    def settles(self, workspace_id: str, seconds: float = 90) -> dict[str, Any]:
        """Wait until no operation is in flight, whatever its outcome."""
        at_rest = ("running", "stopped", "paused", "sleeping", "destroyed", "failed")
        return self.reaches(workspace_id, *at_rest, seconds=seconds)

    def delete(self, workspace_id: str) -> None:
        """Delete and wait until it is gone."""
        response = self.http.request("DELETE", f"/workspace/{workspace_id}")
        assert response.status_code in (200, 202), response.text
        until(lambda: self.is_gone(workspace_id), 60, f"{workspace_id} is deleted")

    def is_gone(self, workspace_id: str) -> bool:
        return self.http.get(f"/workspace/{workspace_id}").status_code == 404

    def owned(self) -> list[str]:
        """The ids of all workspaces, those of sandboxes included."""
        sandboxes = self.patiently("GET", "/sandbox", params={"limit": 100})["sandboxes"]
        return [*(row["id"] for row in self.rows()), *(row["workspace_id"] for row in sandboxes)]

    def delete_all(self, *, keep: Collection[str]) -> None:
        """Request the deletion of every workspace and sandbox but some, then wait for it."""
        ids = [workspace_id for workspace_id in self.owned() if workspace_id not in keep]
        for workspace_id in ids:
            self.http.request("DELETE", f"/workspace/{workspace_id}")
        until(lambda: all(self.is_gone(key) for key in ids), 60, f"{ids} are deleted")
