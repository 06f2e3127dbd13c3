"""The Python client on the platform's own API, with a host of the fake driver."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from django.core.handlers.wsgi import WSGIHandler

from microvm import Microvm
from microvm.errors import InvalidRequest, NotFound, Unauthorized
from tests.callers import Caller
from tests.fakehost import FakeHost
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)


def client_with(client_id: str, secret: str) -> Microvm:
    http = httpx.Client(base_url="http://testserver", transport=httpx.WSGITransport(app=WSGIHandler()))
    return Microvm("http://testserver", client_id=client_id, client_secret=secret, http=http)


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
