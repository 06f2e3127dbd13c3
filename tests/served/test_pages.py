"""Pages of a whole instance: deployed by the process `pages`, also where that is killed in the middle of a deploy."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.vm.client import Api, until
from tests.vm.instances import TestInstance

# A claim owner is dead after 20 s; beat looks every 5 s.
TAKEN_OVER = 90.0


@pytest.fixture
def site(served: TestInstance, box: str) -> Path:
    """The folder /site of the workspace."""
    folder = served.state / "machines/directories" / box / "disk/site"
    folder.mkdir(exist_ok=True)
    (folder / "index.html").write_text("one")
    return folder


def live_file(served: TestInstance, slug: str) -> str:
    return (served.state / "pages/by-slug/pages.localhost" / slug / "current/public/index.html").read_text()


def test_a_page_is_deployed_and_replaced(served: TestInstance, client: Api, box: str, site: Path) -> None:
    body = {"workspace_id": box, "path": "/site", "slug": "first-page"}
    made: dict[str, Any] = client.call("POST", "/pages", 201, json=body)["page"]
    assert made["release"] == 1
    (site / "index.html").write_text("two")
    assert client.call("POST", "/pages/first-page/deploy", 200, json={})["page"]["release"] == 2
    assert live_file(served, "first-page") == "two"


def test_a_worker_that_is_killed_in_a_deploy_leaves_the_former_release(
    served: TestInstance, client: Api, box: str, site: Path
) -> None:
    body = {"workspace_id": box, "path": "/site", "slug": "second-page"}
    client.call("POST", "/pages", 201, json=body)
    (site / "index.html").write_text("two")
    # What the guest sends does not come: the deploy waits for it.
    blocked = site.parent.parent / "archive.tar"
    os.mkfifo(blocked)
    incoming = served.state / "pages/incoming"
    answers: list[dict[str, Any]] = []

    def deploy() -> None:
        answers.append(client.call("POST", "/pages/second-page/deploy", 200, json={}))

    request = threading.Thread(target=deploy)
    request.start()
    try:
        until(lambda: any(incoming.iterdir()), 60, "the deploy receives")
        os.kill(served.pids()["pages"], signal.SIGKILL)
        assert live_file(served, "second-page") == "one"
    finally:
        blocked.unlink()
    request.join(TAKEN_OVER)
    assert [answer["page"]["release"] for answer in answers] == [2]
    assert live_file(served, "second-page") == "two"
    assert not any(incoming.iterdir())
