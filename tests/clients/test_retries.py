"""What the Python client sends again, beside a service that fails as each test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import httpx
import pytest

from microvm import ApiError, AsyncMicrovm, ConnectionFailed, Microvm, Retries
from microvm.errors import InvalidState, NotFound, RateLimited

FAST = Retries(attempts=3, first_wait=0.001)
Answer = httpx.Response | httpx.TransportError


def service(answers: list[Answer], seen: list[httpx.Request]) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        given = answers.pop(0)
        if isinstance(given, httpx.TransportError):
            raise given
        return given

    return answer


def client_of(answers: list[Answer], seen: list[httpx.Request]) -> Microvm:
    http = httpx.Client(base_url="http://test", transport=httpx.MockTransport(service(answers, seen)))
    return Microvm("http://test", client_id="id", client_secret="secret", retries=FAST, http=http)


def found() -> httpx.Response:
    return httpx.Response(200, json={"success": True, "workspace": {"id": "ws_1"}})


def of_html() -> httpx.Response:
    return httpx.Response(200, text="<html>")


def failed(status: int, code: str, **headers: str) -> httpx.Response:
    body = {"success": False, "error": code, "code": code, "message": "A sentence.", "request_id": "r1"}
    return httpx.Response(status, json=body, headers=headers)


def test_creation_is_repeated_with_the_same_key() -> None:
    seen: list[httpx.Request] = []
    with client_of([httpx.ReadError("lost"), failed(503, "VM_UNAVAILABLE"), found()], seen) as client:
        assert client.workspaces.create(name="one")["id"] == "ws_1"
    assert len(seen) == 3
    assert len({request.headers["Idempotency-Key"] for request in seen}) == 1


def test_snapshots_and_forks_are_repeated_with_the_key_that_is_given() -> None:
    seen: list[httpx.Request] = []
    kept = httpx.Response(201, json={"success": True, "snapshot": {"id": "snap_1"}})
    forked = httpx.Response(201, json={"success": True, "forks": []})
    with client_of([httpx.ReadError("lost"), kept, httpx.ReadError("lost"), forked], seen) as client:
        client.snapshots.create("one", name="kept", idempotency_key="mine")
        client.sandboxes.fork("sbx_1", count=2, idempotency_key="mine")
    assert {request.headers["Idempotency-Key"] for request in seen} == {"mine"}
    assert [json.loads(request.content) for request in seen] == [{"name": "kept"}] * 2 + [{"count": 2}] * 2


def test_a_command_whose_answer_was_lost_is_not_run_again() -> None:
    seen: list[httpx.Request] = []
    with client_of([httpx.ReadError("lost"), found()], seen) as client, pytest.raises(ConnectionFailed):
        client.workspaces.exec("one", cmd="make")
    assert len(seen) == 1


def test_a_command_that_never_left_is_sent_again() -> None:
    seen: list[httpx.Request] = []
    done = httpx.Response(200, json={"success": True, "exit_code": 0})
    with client_of([httpx.ConnectError("refused"), done], seen) as client:
        assert client.workspaces.exec("one", cmd="make")["exit_code"] == 0


def test_a_wait_longer_than_the_longest_is_raised_with_its_length() -> None:
    seen: list[httpx.Request] = []
    limited = failed(429, "rate_limited", **{"Retry-After": "3600"})
    with client_of([limited], seen) as client, pytest.raises(RateLimited) as raised:
        client.workspaces.get("one")
    assert (raised.value.retry_after, raised.value.request_id, len(seen)) == (3600, "r1", 1)


def test_the_last_of_all_attempts_is_raised() -> None:
    seen: list[httpx.Request] = []
    with (
        client_of([failed(503, "VM_UNAVAILABLE") for _ in range(3)], seen) as client,
        pytest.raises(ApiError) as raised,
    ):
        client.workspaces.get("one")
    assert (raised.value.code, len(seen)) == ("VM_UNAVAILABLE", 3)


def test_errors_have_a_class_by_their_code() -> None:
    with client_of([failed(409, "invalid_state")], []) as client, pytest.raises(InvalidState, match="A sentence"):
        client.workspaces.start("one")


def test_a_page_of_html_is_an_error_with_its_status() -> None:
    with client_of([httpx.Response(500, text="<html>")], []) as client, pytest.raises(ApiError) as raised:
        client.workspaces.start("one")
    assert (raised.value.status, raised.value.code) == (500, "")


def test_a_slug_with_a_slash_stays_in_its_segment() -> None:
    seen: list[httpx.Request] = []
    with client_of([found()], seen) as client:
        client.workspaces.get("../namespaces")
    assert seen[0].url.raw_path == b"/workspace/..%2Fnamespaces"


def test_the_asynchronous_client_repeats_alike() -> None:
    seen: list[httpx.Request] = []

    async def create() -> str:
        transport = httpx.MockTransport(service([httpx.ReadError("lost"), found()], seen))
        http = httpx.AsyncClient(base_url="http://test", transport=transport)
        async with AsyncMicrovm("http://test", client_id="i", client_secret="s", retries=FAST, http=http) as client:
            return (await client.workspaces.create(name="one"))["id"]

    assert asyncio.run(create()) == "ws_1"
    assert len({request.headers["Idempotency-Key"] for request in seen}) == 1


def test_a_page_of_html_is_no_success() -> None:
    with client_of([of_html()], []) as client, pytest.raises(ApiError) as raised:
        client.workspaces.get("one")
    assert (raised.value.status, raised.value.code) == (200, "")


def test_a_method_without_a_second_effect_is_sent_again() -> None:
    seen: list[httpx.Request] = []
    kept = httpx.Response(200, json={"success": True, "metadata": {"a": 1}})
    with client_of([httpx.ReadError("lost"), kept], seen) as client:
        assert client.metadata.patch("one", metadata={"a": 1}) == {"a": 1}
    assert [request.method for request in seen] == ["PATCH", "PATCH"]


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_changes_the_path_is_refused(name: str) -> None:
    with client_of([], []) as client, pytest.raises(ValueError, match="names nothing"):
        client.workspaces.get(name)


def test_a_send_token_is_sent_alone() -> None:
    seen: list[httpx.Request] = []
    sent = httpx.Response(200, json={"success": True, "delivered": 1, "failed": 0, "devices": 1})
    with client_of([sent], seen) as client:
        client.notifications.send(send_token="snd_1", title="Done")
    assert seen[0].headers["Authorization"] == "Bearer snd_1"
    assert "X-Client-Secret" not in seen[0].headers


def test_what_is_gone_after_a_lost_answer_was_removed() -> None:
    with client_of([httpx.ReadError("lost"), failed(404, "not_found")], []) as client:
        client.workspaces.delete("one")
    refused = failed(429, "rate_limited", **{"Retry-After": "0"})
    for answers in ([failed(404, "not_found")], [refused, failed(404, "not_found")]):
        with client_of(list(answers), []) as client, pytest.raises(NotFound):
            client.workspaces.delete("one")
