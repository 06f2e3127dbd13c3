"""The users of machines' processes: one for each address, none of another instance."""

from __future__ import annotations

from ipaddress import IPv4Network

from vmbackend.uids import UidRange, default_first_uid

SUBNET = IPv4Network("10.200.16.0/20")


def test_each_address_has_a_uid_of_its_own_that_stays_the_same():
    uids = UidRange(default_first_uid(SUBNET), SUBNET)
    machines = list(SUBNET.hosts())[1:]  # the first one is the gateway's
    assert [uids.machine(str(ip)) for ip in machines] == list(uids.machines)


def test_the_subnets_own_address_and_the_gateway_have_no_uid_of_a_machine():
    uids = UidRange(5000, SUBNET)
    assert not {uids.machine("10.200.16.0"), uids.machine("10.200.16.1")} & set(uids.machines)


def test_the_default_ranges_of_two_subnets_do_not_overlap():
    ranges = [
        UidRange(default_first_uid(IPv4Network(net)), IPv4Network(net))
        for net in ("10.128.0.0/20", "10.128.16.0/20", "10.200.0.0/20", "10.255.240.0/20")
    ]
    every = [uid for uids in ranges for uid in range(uids.first, uids.first + 4096)]
    assert len(every) == len(set(every))
    assert 0x6FFFFFFF < min(every) < max(every) < 1 << 31
