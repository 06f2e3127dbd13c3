"""Joins: which machine becomes a host, with which network, and who is refused."""

from __future__ import annotations

import hashlib
import ssl
import time
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import transaction
from django.db.models.functions import Now
from django.test import Client

from hosts import joins, tokens
from hosts.models import JoinToken
from supervise.join_request import make_transfer_key
from tests.hosts.rows import forget_wrong_tokens, open_network
from tests.threads import run_at_once
from vmbackend.models import Host
from vmbackend.services import host_create

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def opened(settings: LazySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance that was opened, and roles and users that are only noted."""
    settings.STATE = tmp_path
    open_network()
    forget_wrong_tokens()
    for name in ("create_host_role", "create_redis_user"):
        monkeypatch.setattr(f"hosts.credentials.{name}", lambda host_id: "password")


def machine(number: int = 2, **changed: Any) -> dict[str, Any]:
    """Return what a machine says of itself."""
    return {
        "machine_id": f"{number:016x}",
        "hostname": f"machine-{number}",
        "arch": "amd64",
        "version": "0.1.0",
        "protocol": joins.PROTOCOL,
        "address": f"192.0.2.{number}",
        "routes": ["192.0.2.0/24"],
        "clock": time.time(),
    } | changed


def ssh_key(character: str = "a") -> str:
    return f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA{character * 42}"


def join(token: str, **described: Any) -> Any:
    return Client().post("/join/hosts", {"token": token, **described}, content_type="application/json")


def new_token(**options: Any) -> str:
    return tokens.token_create(actor="test", **options).text


def test_a_machine_joins_with_a_name_and_a_network_of_its_own() -> None:
    first = host_create(name="one", machine_id="f" * 16, subnet="10.128.0.0/20", address="192.0.2.9", arch="amd64")
    answer = join(new_token(), **machine())
    assert answer.status_code == 201, answer.content
    body = answer.json()
    host = Host.objects.get(pk=body["host"]["id"])
    assert (host.name, host.subnet, host.address) == ("machine-2", "10.128.16.0/20", "192.0.2.2")
    assert body["peers"] == [{"name": "one", "address": first.address, "subnet": first.subnet}]
    assert f"//{host.pk}:" in body["credentials"]["database"]
    assert f"//{host.pk}:" in body["credentials"]["redis"]


def test_a_join_that_died_goes_on_with_its_token_as_the_same_host() -> None:
    token = new_token(name="two")
    one, again = (join(token, **machine()).json() for _ in range(2))
    assert one["host"] == again["host"]
    assert Host.objects.get().name == "two"
    other = join(token, **machine(3))
    assert (other.status_code, other.json()["code"]) == (401, "token_invalid")


@pytest.mark.parametrize("kind", ["unknown", "expired", "wrong pin"])
def test_a_token_that_is_none_makes_no_host(kind: str) -> None:
    token = new_token()
    if kind == "expired":
        JoinToken.objects.update(expires_at=Now() - timedelta(seconds=1))
    answer = join({"unknown": "join_x", "expired": token, "wrong pin": token[:-1] + "!"}[kind], **machine())
    assert (answer.status_code, answer.json()["error"]) == (401, "token_invalid")
    assert not Host.objects.exists()


def test_ten_wrong_tokens_in_a_minute_are_the_most() -> None:
    answers = [join("join_x", **machine(number)).status_code for number in range(2, 14)]
    assert answers == [401] * 10 + [429] * 2
    assert join(new_token(), **machine()).status_code == 201


@pytest.mark.parametrize(
    ("changed", "status", "code", "said"),
    [
        ({"protocol": 0}, 400, "protocol_unsupported", {"wanted": joins.PROTOCOL}),
        ({"clock": 0.0}, 400, "clock_off", None),
        ({"hostname": "one"}, 409, "name_taken", {"name": "one"}),
        ({"machine_id": "f" * 16}, 409, "machine_joined", {"host": "one"}),
        ({"address": "192.0.2.9"}, 409, "subnet_overlaps", {"with": "10.130.0.0/20", "host": "one"}),
        ({"address": "10.130.1.1"}, 409, "subnet_overlaps", {"with": "10.130.0.0/20", "host": "one"}),
        ({"routes": ["10.130.0.0/16"]}, 409, "subnet_overlaps", {"with": "10.130.0.0/20", "host": "one"}),
        ({"routes": ["10.128.0.0/9"]}, 409, "subnet_overlaps", {"with": "10.130.0.0/20", "host": "one"}),
        ({"address": "127.0.0.1"}, 400, "validation_error", None),
        ({"address": "example.org"}, 400, "validation_error", None),
        ({"routes": ["10.0.0.1/8"]}, 400, "validation_error", None),
        ({"machine_id": "../../x"}, 400, "validation_error", None),
        ({"hostname": "a b"}, 400, "validation_error", None),
        ({"ssh_host_key": f"{ssh_key()} comment"}, 400, "validation_error", None),
        ({"ssh_host_key": f"{ssh_key()}\n{ssh_key()}"}, 400, "validation_error", None),
        ({"ssh_host_key": ssh_key()[:-1]}, 400, "validation_error", None),
        ({"ssh_host_key": ssh_key("=")}, 400, "validation_error", None),
        ({"ssh_host_key": f"ssh-rsa {'A' * 400}"}, 400, "validation_error", None),
        ({"ssh_host_key": f"no-pty {ssh_key()}"}, 400, "validation_error", None),
        ({"ssh_host_key": ["x"]}, 400, "validation_error", None),
    ],
)
def test_a_machine_that_does_not_fit_is_refused_and_may_use_its_token_again(
    changed: dict[str, Any], status: int, code: str, said: dict[str, Any] | None
) -> None:
    host_create(name="one", machine_id="f" * 16, subnet="10.130.0.0/20", address="192.0.2.9", arch="amd64")
    token = new_token()
    answer = join(token, **machine(**changed))
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.content
    assert said is None or answer.json()["details"] == said
    assert Host.objects.count() == 1
    assert join(token, **machine(3)).status_code == 201


def test_a_network_that_the_machine_has_a_route_to_is_not_chosen() -> None:
    answer = join(new_token(), **machine(routes=["10.128.0.0/19", "10.128.48.1/32"]))
    assert answer.json()["host"]["subnet"] == "10.128.32.0/20"
    answer = join(new_token(), **machine(3, routes=["10.128.48.1/32"]))
    assert answer.json()["host"]["subnet"] == "10.128.0.0/20"


def test_machines_that_join_at_once_have_different_networks() -> None:
    joined = [(new_token(), machine(number)) for number in range(2, 8)]
    run_at_once(6, lambda number: join(joined[number][0], **joined[number][1]))
    assert len(set(Host.objects.values_list("subnet", flat=True))) == 6


def test_a_join_that_waited_for_another_is_not_told_that_its_clock_is_wrong() -> None:
    token, locked = new_token(), Event()

    def wait_and_join(number: int) -> None:
        if number == 0:
            with transaction.atomic():
                joins._lock_joins()
                locked.set()
                time.sleep(joins.CLOCK_SECONDS + 0.2)
        else:
            assert locked.wait(30)
            assert join(token, **machine()).status_code == 201

    assert run_at_once(2, wait_and_join) == ["done", "done"]


def test_one_token_at_once_makes_one_host() -> None:
    token = new_token()
    statuses: list[int] = []
    run_at_once(6, lambda number: statuses.append(join(token, **machine(number + 2)).status_code))
    assert sorted(statuses) == [201] + [401] * 5
    assert Host.objects.count() == 1


def test_the_key_of_a_machine_is_stored_and_another_join_replaces_it() -> None:
    first = join(new_token(name="two"), **machine(ssh_host_key=ssh_key())).json()["host"]["id"]
    assert Host.objects.get().transfer_key == ssh_key()
    for key in (ssh_key("b"), ""):
        token = tokens.token_create(actor="test", host=Host.objects.get()).text
        told = {"ssh_host_key": key} if key else {}
        assert join(token, **machine(**told)).json()["host"]["id"] == first
        assert Host.objects.get().transfer_key == key


def test_a_machine_of_before_joins_without_a_key() -> None:
    assert join(new_token(), **machine()).status_code == 201
    assert Host.objects.get().transfer_key == ""


def test_a_key_as_it_is_made_is_taken(tmp_path: Path) -> None:
    made = make_transfer_key(tmp_path)
    assert join(new_token(), **machine(ssh_host_key=made)).status_code == 201
    assert Host.objects.get().transfer_key == made


def test_a_token_ends_with_the_fingerprint_of_what_machines_are_shown() -> None:
    answer = Client().get("/join/ca")
    shown = hashlib.sha256(ssl.PEM_cert_to_DER_cert(answer.content.decode())).hexdigest()
    assert new_token().endswith(f".{shown}")


def test_tokens_are_hashed_and_removed_a_day_after_their_end() -> None:
    text = new_token()
    row = JoinToken.objects.get()
    assert text not in str(vars(row))
    JoinToken.objects.update(expires_at=Now() - timedelta(days=2))
    assert tokens.remove_expired_tokens() == 1
