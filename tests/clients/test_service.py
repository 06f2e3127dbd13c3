"""The Python client on the platform's own API, with a host of the fake driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from django.core.handlers.wsgi import WSGIHandler

from microvm import AccessTokens, ApiError, Microvm
from microvm.errors import Forbidden, InvalidRequest, NotFound, Unauthorized
from tests.callers import Caller
from tests.fakehost import FakeHost
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)


def client_with(client_id: str, secret: str, tokens: AccessTokens | None = None) -> Microvm:
    http = httpx.Client(base_url="http://testserver", transport=httpx.WSGITransport(app=WSGIHandler()))
    return Microvm("http://testserver", client_id=client_id, client_secret=secret, access_tokens=tokens, http=http)


@pytest.fixture
def client(api: Caller, vmhost: FakeHost) -> Iterator[Microvm]:
    with client_with(api.client_id, api.secret) as made:
        yield made


def test_a_workspace_is_made_stopped_started_and_deleted(client: Microvm) -> None:
    seen: list[str] = []
    made = client.workspaces.create(name="One", image="localhost/tiny:1")
    ready = client.workspaces.wait_until_ready(made["id"], progress=lambda state: seen.append(state["state"]))
    assert (ready["ready"], seen[-1]) == (True, "ready")
    assert client.workspaces.stop("one")["info"]["status"] == "stopped"
    assert client.workspaces.start("one")["info"]["status"] == "running"
    client.workspaces.delete("one")
    with pytest.raises(NotFound):
        client.workspaces.get("one")


def test_one_key_makes_one_workspace(client: Microvm) -> None:
    first, second = (client.workspaces.create(idempotency_key="k", image="localhost/tiny:1") for _ in range(2))
    assert first["id"] == second["id"]
    assert Workspace.objects.count() == 1


def test_all_pages_of_a_list_are_read_once_each(client: Microvm) -> None:
    made = {client.workspaces.create(image="localhost/tiny:1")["id"] for _ in range(3)}
    listed = [workspace["id"] for workspace in client.workspaces.list(page_size=2)]
    assert (set(listed), len(listed)) == (made, 3)


def test_bad_input_names_the_field(client: Microvm) -> None:
    with pytest.raises(InvalidRequest) as raised:
        client.workspaces.create(config={"cpus": "many"}, image="localhost/tiny:1")
    assert raised.value.code == "INVALID_CONFIG"
    assert "cpus" in str(raised.value.details)


def test_a_wrong_secret_is_unauthorized(api: Caller) -> None:
    with client_with(api.client_id, "wrong") as client, pytest.raises(Unauthorized):
        client.workspaces.get("one")


# A warning of Django: the WSGI server of this test has no event loop for streamed bodies; the platform's has.
@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
def test_files_go_up_and_down_whatever_their_names(client: Microvm, tmp_path: Path) -> None:
    made = client.workspaces.create(slug="box", image="localhost/tiny:1")
    client.workspaces.wait_until_ready(made["id"])
    (tmp_path / "up").write_bytes(bytes(range(256)) * 100)
    name = "/root/a+b &c/é %41 'x'"
    assert client.files.upload("box", name, tmp_path / "up")["size"] == 25_600
    assert client.files.download("box", name, tmp_path / "down") == 25_600
    assert (tmp_path / "down").read_bytes() == (tmp_path / "up").read_bytes()
    assert client.files.write("box", name, b"short")["path"] == name
    assert client.files.read("box", name) == b"short"
    assert [entry["name"] for entry in client.files.list("box", path="/root/a+b &c", page_size=1)] == ["é %41 'x'"]


def test_a_directory_is_listed_over_all_its_pages(client: Microvm) -> None:
    made = client.workspaces.create(slug="box", image="localhost/tiny:1")
    client.workspaces.wait_until_ready(made["id"])
    for number in range(5):
        client.files.write("box", f"/many/{number}", b"")
    assert [entry["name"] for entry in client.files.list("box", path="/many", page_size=2)] == list("01234")


def test_namespaces_are_listed_over_all_their_pages(client: Microvm) -> None:
    made = {client.namespaces.create(name=f"Team {number}")["slug"] for number in range(5)}
    listed = [namespace["slug"] for namespace in client.namespaces.list(page_size=2)]
    assert (set(listed), len(listed)) == (made | {"default"}, 6)
    assert len(list(client.namespaces.activity("team-1", page_size=1))) == 1


def test_cdn_namespaces_are_listed_over_all_their_pages(client: Microvm) -> None:
    made = {client.namespaces.create(name=f"Team {number}")["slug"] for number in range(4)}
    listed = [row["namespace"] for row in client.cdn.namespaces(page_size=2)]
    assert (set(listed), len(listed)) == (made | {"default"}, 5)


def test_a_client_with_access_tokens_of_a_namespace_sees_that_namespace(api: Caller, client: Microvm) -> None:
    client.namespaces.create(name="Web")
    tokens = AccessTokens(scope="namespace", namespace="web", ttl=60)
    with client_with(api.client_id, api.secret, tokens) as narrow:
        assert [namespace["slug"] for namespace in narrow.namespaces.list()] == ["web"]
        with pytest.raises(Forbidden):
            narrow.credentials.create(scope="account", name="wide")


def test_a_token_that_ended_with_its_credential_is_not_renewed(api: Caller, client: Microvm) -> None:
    made = client.credentials.create(scope="account", name="other")
    tokens = AccessTokens()
    with client_with(made["credential"]["client_id"], made["client_secret"], tokens) as other:
        assert other.quota.get()["plan"]
        client.credentials.delete(made["credential"]["id"])
        with pytest.raises(Unauthorized):
            other.quota.get()


def test_a_sandbox_is_opened_with_its_own_token(client: Microvm) -> None:
    made = client.sandboxes.create(name="play", image="localhost/tiny:1")
    inside = client.sandboxes.open(made["url"], made["token"])
    assert inside.files.create(fullPath="/workspace/a.txt", content="one")["size"] == 3
    assert [entry["name"] for entry in inside.files.list(dirPath="/workspace")["files"]] == ["a.txt"]
    token = client.sandboxes.regenerate_token(made["id"])
    with pytest.raises(Forbidden):
        inside.files.list(dirPath="/workspace")
    assert client.sandboxes.open(made["url"], token).files.exists(filePath="/workspace/a.txt")["exists"]


def test_every_reading_method_of_a_workspace_answers(client: Microvm) -> None:
    made = client.workspaces.create(slug="box", image="localhost/tiny:1")
    ready = client.workspaces.wait_until_ready(made["id"])
    assert client.workspaces.details("box")["id"] == made["id"]
    assert client.quota.estimate(cpu=1, ram_mb=512, disk_mb=512)["credits_per_hour"] >= 0
    assert client.resources.get("box")["memory_mb"] == ready["resources"]["memory_mb"]
    assert client.lifecycle.get("box")["mode"] == ready["mode"]
    assert client.metadata.update("box", metadata={"a": None}) == client.metadata.get("box") == {"a": None}
    assert client.usage.totals("box")["total_net_rx"] >= 0
    assert made["id"] in client.usage.all()["usage"]
    assert client.usage.series("box", last="1h", all=True)["workspace_id"] == made["id"]
    assert client.usage.activity(from_="2026-01-01T00:00:00Z")["history"]
    assert client.metrics.stats("box")["apiCalls"] >= 0
    assert client.network.get("box")["allow_internet"] is True
    assert client.ports.list("box")["success"] is True
    assert client.ssh.get("box")["ssh_enabled"] is False
    assert client.images.list(category="os")["categories"]
    assert client.domains.get("box") is None


def test_money_and_hooks_answer(client: Microvm) -> None:
    quota = client.credits.set_quota(namespace="default", service="sandbox", quotaLimit=10)
    assert client.credits.get("default", days=1)["quotas"] == [quota]
    assert [row["namespace"] for row in client.credits.list()] == ["default"]
    assert client.credits.reset_quota(namespace="default", service="sandbox")["quota_used"] == 0
    made = client.webhooks.create(url="https://hooks.example/x", events=["vm.lost"])["webhook"]
    assert [hook["id"] for hook in client.webhooks.list()] == [made["id"]]
    assert list(client.webhooks.deliveries(made["id"])) == []
    client.webhooks.delete(made["id"])
    assert client.pages.list() == []
    assert list(client.notifications.tokens()) == []
    assert client.cdn.policy()["namespace"] is None
    key = client.api_keys.create(name="mine")
    assert [each["id"] for each in client.api_keys.list()] == [key["api_key"]["id"]]
    with pytest.raises(ApiError, match="GENERATION_FAILED"):
        client.assist.generate(api_key=key["key"], prompt="x")
