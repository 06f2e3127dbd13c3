"""Terminals over WebSockets: the real application in the real server, and the guest's own program behind it."""

from __future__ import annotations

import base64
import json
import time
from contextlib import suppress

import pytest
from django.contrib.auth import get_user_model

from common.redis import redis_client, redis_key
from common.stream_clients import open_clients
from sandboxes import services
from tests.callers import Caller
from tests.sandboxes.rows import make_sandbox
from tests.sandboxes.sockets.client import Closed, Refused, WebSocketClient
from tests.sandboxes.sockets.conftest import Box
from workspaces import last_used
from workspaces.data_plane.sockets.machine import USE_SECONDS
from workspaces.lifecycle.serializers import MIN_SUSPEND_AFTER_SECONDS
from workspaces.models import Operation, Workspace

pytestmark = pytest.mark.django_db(transaction=True)


def shell(script: str) -> dict[str, object]:
    return {"action": "terminal_create", "command": "sh", "args": ["-c", script]}


def test_a_terminal_from_its_creation_to_its_end(box: Box) -> None:
    client = box.connect()
    made = client.ask("terminal_created", **shell("stty size; read x; echo got $x; exit 3"), requestId="r1")
    id = made["terminalId"]
    assert made == {"type": "terminal_created", "terminalId": id, "cols": 120, "rows": 30, "requestId": "r1"}
    client.read_until(id, b"30 120\r\n")
    resized = client.ask("terminal_resized", a="r", id=id, cols=90, rows=20)
    assert resized == {"type": "terminal_resized", "terminalId": id, "cols": 90, "rows": 20}
    listed = client.ask("terminal_list", action="terminal_list", requestId=7)
    assert (listed["requestId"], [(each["terminalId"], each["running"]) for each in listed["terminals"]]) == (
        7, [(id, True)],
    )  # fmt: skip
    client.send(a="i", id=id, d="hé")
    client.send_raw(bytes([id]) + b"llo\r")
    client.read_until(id, "got héllo\r\n".encode())
    ended = client.expect("terminal_exited")
    assert ended == {"type": "terminal_exited", "terminalId": id, "exitCode": 3, "signal": None}
    closed = client.ask("terminal_closed", action="terminal_close", terminalId=id, requestId="c")
    assert closed == {"type": "terminal_closed", "terminalId": id, "requestId": "c"}
    assert client.ask("terminal_list", action="terminal_list")["terminals"] == []


@pytest.mark.parametrize("end", ["", "/", "/ws"])
def test_the_addresses_of_the_socket(box: Box, end: str) -> None:
    box.connect(end=end)


def test_open_sockets_are_counted_for_metrics(box: Box) -> None:
    """Others may be open: of a test before, for some seconds."""

    def wait_until_counted(least: int, most: int) -> None:
        until = time.monotonic() + 60
        while not least <= open_clients()["sockets"] <= most:
            assert time.monotonic() < until, open_clients()
            time.sleep(0.05)

    wait_until_counted(0, 0)
    clients = [box.connect(), box.connect()]
    wait_until_counted(2, 2)
    for client in clients:
        client.socket.close()
    wait_until_counted(0, 0)


def test_what_is_refused_before_the_handshake(box: Box, api: Caller) -> None:
    _, others = make_sandbox(api.account, host=None)
    stopped, its = make_sandbox(api.account, host=None, status="stopped")
    former = box.token
    box.token = services.token_regenerate(workspace=box.sandbox.workspace, actor="owner")
    cases = [
        ("", "", 401, "unauthorized"), ("sbt_unknown", "", 401, "unauthorized"), (former, "", 403, "forbidden"),
        (others, "", 403, "forbidden"), (its, stopped.pk, 409, "vm_not_running"),
    ]  # fmt: skip
    for token, id, status, code in cases:
        with pytest.raises(Refused) as refused:
            box.connect(token=token, id=id)
        body = json.loads(refused.value.body)
        assert (refused.value.status, body["code"]) == (status, code)
        assert body["request_id"] == refused.value.headers["x-request-id"]
    with pytest.raises(Refused) as refused:
        box.connect(end="/files/list")
    assert refused.value.status == 404
    box.connect()
    assert former not in box.streams.log.read_text()
    assert box.token not in box.streams.log.read_text()


def test_staff_are_refused_by_a_close_code_which_their_page_can_read(box: Box, api: Caller) -> None:
    user = get_user_model().objects.create_superuser("carol")
    stopped, _ = make_sandbox(api.account, host=None, status="stopped")
    tokens = [
        services.staff_token_create(workspace=each.workspace, user=user, actor="staff carol")
        for each in (box.sandbox, stopped)
    ]
    cases = [
        ("sbs_unknown", "", 4401, "The token is missing or unknown, or has expired."),
        (tokens[0], stopped.pk, 4401, "This token is that of another sandbox."),
        (tokens[1], stopped.pk, 1001, "The workspace is stopped; it must be running."),
    ]
    for token, id, code, reason in cases:
        with pytest.raises(Closed) as closed:
            WebSocketClient(box.streams.socket, f"/s/{id or box.sandbox.pk}/ws?token={token}").expect("connected")
        assert (closed.value.code, closed.value.reason) == (code, reason)
    assert box.connect(token=tokens[0]).ask("terminal_list", action="terminal_list")["terminals"] == []


def test_staff_open_terminals_of_a_plain_workspace_until_it_sleeps(box: Box) -> None:
    workspace = box.sandbox.workspace
    box.sandbox.delete()
    Workspace.objects.update(kind="workspace")
    user = get_user_model().objects.create_superuser("carol")
    token = services.staff_token_create(workspace=workspace, user=user, actor="staff carol")
    client = box.connect(token=token, id=workspace.pk)
    made = client.ask("terminal_created", **shell("read x; echo got $x"))["terminalId"]
    client.send(a="i", id=made, d="it\n")
    client.read_until(made, b"got it\r\n")
    Workspace.objects.update(status="sleeping")
    assert client.wait_closed().code == 1001
    with pytest.raises(Closed) as closed:
        box.connect(token=token, id=workspace.pk)
    assert (closed.value.code, closed.value.reason) == (1001, "The workspace is sleeping; it must be running.")
    assert not Operation.objects.exists()
    assert token not in box.streams.log.read_text()


def test_a_token_that_ends_closes_its_sockets_in_every_process(box: Box) -> None:
    client, elsewhere = box.connect(), box.connect(streams=box.another_process())
    client.ask("terminal_created", **shell("yes"))
    services.token_regenerate(workspace=box.sandbox.workspace, actor="owner")
    for each in (client, elsewhere):
        closed = each.wait_closed()
        assert (closed.code, closed.reason) == (4401, "the token was replaced")


def test_a_sandbox_that_stops_closes_its_sockets(box: Box) -> None:
    client = box.connect()
    client.ask("terminal_created", **shell("sleep 1000"))
    Workspace.objects.filter(pk=box.sandbox.workspace_id).update(status="stopped")
    box.hold.close()
    assert client.wait_closed().code == 1001


def test_an_open_socket_is_a_use_as_long_as_it_is_open(box: Box) -> None:
    client, id = box.connect(), box.sandbox.workspace_id
    client.ask("terminal_created", **shell("sleep 1000"))
    redis_client().delete(redis_key(f"last-used:{id}"))  # its opening is one, too
    until = time.monotonic() + 60
    while not last_used.last_used(id):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert USE_SECONDS < MIN_SUSPEND_AFTER_SECONDS


def test_two_sockets_share_a_terminal_and_either_closes_it(box: Box) -> None:
    first, second = box.connect(), box.connect()
    id = first.ask("terminal_created", **shell("echo one; read x; echo $x; sleep 1000"))["terminalId"]
    first.read_until(id, b"one\r\n")
    attached = second.ask("terminal_attached", action="terminal_attach", id=id, offset=0, requestId="a")
    assert attached == {
        "type": "terminal_attached", "terminalId": id, "cols": 120, "rows": 30, "offset": 0, "skipped": 0,
        "requestId": "a",
    }  # fmt: skip
    second.read_until(id, b"one\r\n")
    second.send(a="i", id=id, d="two\r")
    assert first.read_until(id, b"two\r\ntwo\r\n") == second.read_until(id, b"two\r\ntwo\r\n")
    second.ask("terminal_closed", action="terminal_close", terminalId=id)
    assert first.expect("terminal_closed")["terminalId"] == id


def test_a_state_has_modes_and_lines_and_output_goes_on_after_it(box: Box) -> None:
    client = box.connect()
    script = r"stty -echo; printf '\033[?1049h\033[?2004h\033[6n'; seq 50; read x; echo more; sleep 1000"
    id = client.ask("terminal_created", **shell(script))["terminalId"]
    client.read_until(id, b"50\r\n")
    client.socket.close()
    again = box.connect()
    found = again.ask("terminal_state", action="get_state", id=id, maxLines=3)
    state = base64.b64decode(found["state"])
    assert state == b"\x1b[?1049h\x1b[?2004h49\r\n50\r\n"
    again.send(a="i", id=id, d="x\r")
    assert again.read_until(id, b"more\r\n") == b"more\r\n"


def test_sockets_beyond_the_limit_are_429(box: Box) -> None:
    for _ in range(16):
        box.connect()
    with pytest.raises(Refused) as refused:
        box.connect()
    assert refused.value.status == 429


def test_the_limit_of_sockets_is_one_of_all_processes_and_a_killed_ones_stop_counting(box: Box) -> None:
    other = box.another_process()
    for number in range(16):
        box.connect(streams=other if number % 2 else None)
    for streams in (other, None):
        with pytest.raises(Refused) as refused:
            box.connect(streams=streams)
        assert refused.value.status == 429
    box.opened[0].socket.close()
    connect_soon(box).socket.close()
    other.kill()
    for _ in range(9):
        connect_soon(box)
    with pytest.raises(Refused):
        box.connect()


def connect_soon(box: Box) -> WebSocketClient:
    until = time.monotonic() + 60
    while True:
        with suppress(Refused):
            return box.connect()
        assert time.monotonic() < until
        time.sleep(0.2)


def test_at_the_limit_an_ended_terminal_makes_room_and_a_running_one_does_not(box: Box) -> None:
    client = box.connect()
    short = client.ask("terminal_created", **shell("true"))["terminalId"]
    client.expect("terminal_exited")
    client.socket.close()
    again = box.connect()
    running = [again.ask("terminal_created", **shell("sleep 1000"))["terminalId"] for _ in range(64)]
    assert short not in running
    refused = again.ask("terminal_error", **shell("true"), requestId="more")
    assert (refused["code"], refused["requestId"]) == ("terminal_limit", "more")
