"""Pages of a whole instance: deployed by the process `pages`, also where that is killed in the middle of a deploy."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.pages.archives import archive_of
from tests.served.requests import addresses, connected, head
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
    until(lambda: not any(incoming.iterdir()), 15, "the next reconcile removes what the killed one received")


@pytest.mark.parametrize("where", ["edge", "api"])
def test_a_deploy_goes_on_without_the_client_that_asked_for_it(
    served: TestInstance, client: Api, box: str, site: Path, where: str
) -> None:
    slug = f"left-{where}-page"
    client.call("POST", "/pages", 201, json={"workspace_id": box, "path": "/site", "slug": slug})
    blocked = site.parent.parent / "archive.tar"
    os.mkfifo(blocked)
    credentials = {name: client.http.headers[name] for name in ("X-Client-ID", "X-Client-Secret")}
    kind = {"Content-Type": "application/json", "Content-Length": "2"}
    try:
        with connected(addresses(served)[where]) as connection:
            connection.sendall(head("POST", f"/pages/{slug}/deploy", {**credentials, **kind}) + b"\r\n{}")
            until(lambda: any((served.state / "pages/incoming").iterdir()), 60, "the deploy receives")
        # The client is gone. It asks again while the first deploy runs, and when that has ended.
        refused = client.call("POST", f"/pages/{slug}/deploy", 409, json={})
        assert refused["code"] == "operation_in_progress"
        with blocked.open("wb") as guest:
            guest.write(archive_of({"index.html": b"two"}))
    finally:
        blocked.unlink()
    until(lambda: live_file(served, slug) == "two", TAKEN_OVER, "the deploy is carried out")
    until(lambda: deployment(client, slug) == "deployed", TAKEN_OVER, "it ends")
    assert [row["release"] for row in client.call("GET", f"/pages/{slug}/releases")["releases"]] == [2, 1]
    assert client.call("POST", f"/pages/{slug}/deploy", 200, json={})["page"]["release"] == 3


def deployment(client: Api, slug: str) -> str:
    return str(client.call("GET", f"/pages/{slug}")["page"]["deployment"]["state"])


def test_of_20_creations_at_once_one_goes_through_where_there_are_credits_for_one(
    served: TestInstance, client: Api
) -> None:
    client.call("POST", "/namespaces", 201, json={"name": "Few credits", "slug": "few-credits"})
    made = client.create("localhost/tiny:1", body={"namespace": "few-credits"})
    folder = served.state / "machines/directories" / made["id"] / "disk/site"
    folder.mkdir()
    (folder / "index.html").write_text("one")
    # The price of one deploy.
    quota = {"namespace": "few-credits", "service": "deployment", "quotaLimit": 0.1, "overdraft": 0}
    client.call("POST", "/credits/namespace-quota", 200, json=quota)
    body = {"workspace_id": made["id"], "path": "/site"}

    def create(_: int) -> tuple[int, str]:
        answer = client.http.post("/pages", json=body, timeout=120)
        return answer.status_code, answer.text

    with ThreadPoolExecutor(20) as threads:
        answers = sorted(threads.map(create, range(20)))
    assert [status for status, _ in answers] == [201] + [402] * 19, answers
    [shown] = client.call("GET", "/credits/namespaces/few-credits")["data"]["quotas"]
    assert (shown["quota_used"], shown["quota_limit"]) == (0.1, 0.1)
    assert len([page for page in client.call("GET", "/pages")["pages"] if page["namespace"] == "few-credits"]) == 1
