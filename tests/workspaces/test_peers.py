"""The other hosts that a host's driver is told of: those of the rows, whatever becomes of the database."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from django.conf import settings
from django.db import OperationalError

from tests.fakehost import FakeHost
from tests.threads import wait_until
from tests.workspaces.rows import make_host
from vmbackend.errors import BackendUnavailable
from vmbackend.fake.driver import FakeDriver
from vmbackend.models import Host
from vmbackend.peers import Peer
from vmbackend.services import host_delete
from workspaces.host import peers
from workspaces.host.peers import PeerKeeper

pytestmark = pytest.mark.django_db(transaction=True)

OWN_SUBNET = "10.200.0.0/20"
SECOND = Peer(IPv4Address("192.0.2.2"), IPv4Network("10.201.0.0/20"))
THIRD = Peer(IPv4Address("192.0.2.3"), IPv4Network("10.202.0.0/20"))


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    return FakeDriver(tmp_path / "driver")


@pytest.fixture
def keeper(driver: FakeDriver) -> PeerKeeper:
    own = add_host("one", Peer(IPv4Address("192.0.2.1"), IPv4Network(OWN_SUBNET)))
    return PeerKeeper(own.pk, driver, address="192.0.2.1", subnet=OWN_SUBNET)


def add_host(name: str, peer: Peer) -> Host:
    row = make_host(name)
    Host.objects.filter(pk=row.pk).update(address=str(peer.address), subnet=str(peer.subnet))
    return row


def test_every_other_host_with_an_address_is_a_peer(keeper: PeerKeeper, driver: FakeDriver) -> None:
    add_host("two", SECOND)
    make_host("alone")
    keeper.run_once()
    assert driver.peers == {SECOND}
    row = add_host("three", THIRD)
    Host.objects.filter(name="two").update(lease_until=None, problem="silent")
    keeper.run_once()
    assert driver.peers == {SECOND, THIRD}
    moved = replace(SECOND, address=IPv4Address("192.0.2.9"))
    add_host("two", moved)
    host_delete(host_id=row.pk)
    keeper.run_once()
    assert driver.peers == {moved}


def test_a_host_without_an_address_is_alone(driver: FakeDriver) -> None:
    driver.peers = frozenset({SECOND})  # of a time when it had one
    add_host("two", SECOND)
    PeerKeeper("host_of_its_own", driver, address="", subnet=OWN_SUBNET).run_once()
    assert driver.peers == set()


@pytest.mark.parametrize(
    "columns",
    [
        {"address": "10.200.0.7"},
        {"address": "10.201.0.7"},
        {"address": "no address"},
        {"address": "127.0.0.1"},
        {"address": "192.0.2.1"},
        {"subnet": "10.200.8.0/24"},
        {"subnet": "10.201.8.0/24"},
        {"subnet": ""},
    ],
    ids=str,
)
def test_a_row_that_cannot_be_a_peer_keeps_no_other_one_away(
    keeper: PeerKeeper, driver: FakeDriver, columns: dict[str, str]
) -> None:
    add_host("two", SECOND)
    add_host("bad", replace(THIRD, address=IPv4Address("192.0.2.4"), subnet=IPv4Network("10.203.0.0/20")))
    Host.objects.filter(name="bad").update(**columns)
    add_host("three", THIRD)
    keeper.run_once()
    assert driver.peers == {SECOND, THIRD}


def test_peers_stay_while_the_database_is_away(
    keeper: PeerKeeper, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_host("two", SECOND)
    monkeypatch.setattr(peers, "ROUND_SECONDS", 0.01)
    keeper.start()
    try:
        wait_until(lambda: driver.peers == {SECOND})
        asked = list[int]()

        def away() -> None:
            asked.append(1)
            raise OperationalError("the server closed the connection")

        with monkeypatch.context() as outage:
            outage.setattr(peers, "close_old_connections", away)
            add_host("three", THIRD)
            wait_until(lambda: len(asked) > 3)
            assert driver.peers == {SECOND}
        wait_until(lambda: driver.peers == {SECOND, THIRD})
    finally:
        keeper.stop()


def test_what_the_driver_could_not_apply_is_applied_later(keeper: PeerKeeper, driver: FakeDriver) -> None:
    add_host("two", SECOND)
    driver.fail_next("apply_peers", BackendUnavailable("The host's program nft failed."))
    with pytest.raises(BackendUnavailable):
        keeper.run_once()
    keeper.run_once()
    assert driver.peers == {SECOND}


def test_vmhost_keeps_its_peers_from_its_start_on(vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    assert vmhost.driver.peers == set()
    add_host("two", SECOND)
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"host_address": "192.0.2.1"}))
    vmhost.restart()
    wait_until(lambda: vmhost.driver.peers == {SECOND})
    assert Host.objects.get(name=settings.ENV.host_name).address == "192.0.2.1"
