"""Samples with a libvirt that records its calls: one masked call for exactly the given machines."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

libvirt = pytest.importorskip("libvirt")

from vmbackend.errors import BackendUnavailable, GuestUnreachable, InvalidMachineState  # noqa: E402
from vmbackend.libvirt import agent, meters  # noqa: E402
from vmbackend.libvirt.domain import Domains, name_for, uuid_for  # noqa: E402
from vmbackend.libvirt.meters import Meters  # noqa: E402
from vmbackend.samples import GuestDisk  # noqa: E402

INSTANCE = "abcdef"
MIB = 1 << 20
HUGE = 1 << 70
RUNNING = {
    "state.state": libvirt.VIR_DOMAIN_RUNNING,
    "cpu.time": 5,
    "balloon.maximum": 200_000,
    "balloon.available": 190_000,
    "balloon.usable": 90_000,
    "net.count": 1,
    "net.0.rx.bytes": 7,
    "net.0.tx.bytes": 8,
    "block.count": 2,
    "block.0.rd.bytes": 1,
    "block.1.rd.bytes": 2,
    "block.1.wr.bytes": 4,
}


class FakeDomain:
    def __init__(self, machine_id: str) -> None:
        self.machine_id = machine_id

    def name(self) -> str:
        return name_for(INSTANCE, self.machine_id)

    def state(self) -> list[int]:
        return [libvirt.VIR_DOMAIN_RUNNING, 0]


class FakeConnection:
    """Has some machines; listing domains fails the test, as there is no such method."""

    def __init__(self, **stats: dict[str, Any]) -> None:
        self.stats = stats
        self.lookups: list[str] = []
        self.calls: list[tuple[list[str], int, int]] = []

    def lookupByUUIDString(self, wanted: str) -> FakeDomain:
        for machine_id in self.stats:
            if uuid_for(INSTANCE, machine_id) == wanted:
                self.lookups.append(machine_id)
                return FakeDomain(machine_id)
        raise no_domain()

    def domainListGetStats(self, domains: list[FakeDomain], what: int, flags: int) -> list[Any]:
        self.calls.append(([domain.machine_id for domain in domains], what, flags))
        return [(domain, self.stats[domain.machine_id]) for domain in domains if domain.machine_id in self.stats]


def no_domain(code: int = libvirt.VIR_ERR_NO_DOMAIN) -> Exception:
    error = libvirt.libvirtError("raised by the test")
    error.err = (code, 0, "", 0, "", None, None, 0, 0)
    return error


def make_meters(connection: Any, folder: Path) -> Meters:
    host = SimpleNamespace(connection=connection)
    record = SimpleNamespace(disk_mb=64)

    def files(machine_id: str) -> Any:
        return SimpleNamespace(agent_socket=folder / machine_id, read_record=lambda: record)

    return Meters(host, Domains(INSTANCE), files)  # type: ignore[arg-type]


def test_samples_are_one_call_for_exactly_the_given_machines(tmp_path: Path) -> None:
    connection = FakeConnection(one=RUNNING, two=RUNNING, three=RUNNING)
    meters = make_meters(connection, tmp_path)
    assert set(meters.samples(["one", "three"])) == {"one", "three"}
    assert set(meters.samples(["one", "three"])) == {"one", "three"}
    requested, what, flags = connection.calls[0]
    assert len(connection.calls) == 2
    assert requested == ["one", "three"]
    assert connection.lookups == ["one", "three"]  # once each
    assert what & libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
    assert not what & libvirt.VIR_DOMAIN_STATS_VCPU
    assert flags == libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT


def test_samples_sum_disks_and_interfaces_and_give_memory_in_bytes(tmp_path: Path) -> None:
    (tmp_path / "one").touch()
    sample = make_meters(FakeConnection(one=RUNNING), tmp_path).samples(["one"])["one"]
    assert (sample.cpu_time_ns, sample.disk_read_bytes, sample.disk_write_bytes) == (5, 3, 4)
    assert (sample.net_rx_bytes, sample.net_tx_bytes) == (7, 8)
    assert (sample.memory_used_bytes, sample.memory_total_bytes) == (100_000 * 1024, 190_000 * 1024)
    assert sample.generation


def test_no_machines_to_sample_is_no_call(tmp_path: Path) -> None:
    connection = FakeConnection()
    assert make_meters(connection, tmp_path).samples([]) == make_meters(connection, tmp_path).samples(["unknown"]) == {}
    assert connection.calls == []


@pytest.mark.parametrize(
    "stats",
    [{}, {"state.state": libvirt.VIR_DOMAIN_SHUTOFF, "cpu.time": 5}, {"state.state": libvirt.VIR_DOMAIN_RUNNING}],
)
def test_samples_omit_machines_without_a_process_or_without_statistics(tmp_path: Path, stats: dict[str, int]) -> None:
    assert make_meters(FakeConnection(one=stats, two=RUNNING), tmp_path).samples(["one", "two"]).keys() == {"two"}


@pytest.mark.parametrize(
    ("reported", "used", "total"),
    [
        ({"balloon.available": 1 << 60, "balloon.usable": 0}, 200_000, 200_000),
        ({"balloon.usable": 1 << 60}, 0, 190_000),
        ({"balloon.usable": -5}, 190_000, 190_000),
    ],
)
def test_reported_memory_is_limited_to_the_memory_of_the_machine(
    tmp_path: Path, reported: dict[str, int], used: int, total: int
) -> None:
    sample = make_meters(FakeConnection(one=RUNNING | reported), tmp_path).samples(["one"])["one"]
    assert (sample.memory_used_bytes, sample.memory_total_bytes) == (used * 1024, total * 1024)


def test_a_guest_without_a_balloon_has_no_memory_sample(tmp_path: Path) -> None:
    stats = {name: value for name, value in RUNNING.items() if not name.startswith("balloon.")}
    assert make_meters(FakeConnection(one=stats), tmp_path).samples(["one"])["one"].memory_total_bytes is None


def test_a_new_connection_has_new_handles(tmp_path: Path) -> None:
    first, second = FakeConnection(one=RUNNING), FakeConnection(one=RUNNING)
    meters = make_meters(first, tmp_path)
    meters.samples(["one"])
    meters._libvirt.connection = second  # type: ignore[misc]
    meters.samples(["one"])
    assert (first.lookups, second.lookups) == (["one"], ["one"])


def test_handles_of_removed_machines_do_not_accumulate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmbackend.libvirt.meters._SPARE_HANDLES", 5)
    connection = FakeConnection(**{f"m{number}": RUNNING for number in range(100)})
    meters = make_meters(connection, tmp_path)
    for number in range(100):
        assert set(meters.samples([f"m{number}"])) == {f"m{number}"}
        assert len(meters._handles) <= 8
    lookups_before = len(connection.lookups)
    for _ in range(3):  # a request for one machine does not evict the handles of others
        meters.samples(["m98", "m99"])
        meters.samples(["m97"])
    assert len(connection.lookups) <= lookups_before + 2


def test_a_libvirt_error_is_raised_as_backend_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = FakeConnection(one=RUNNING)

    def broken(*arguments: Any) -> None:
        raise no_domain(libvirt.VIR_ERR_INTERNAL_ERROR)

    monkeypatch.setattr(connection, "domainListGetStats", broken)
    with pytest.raises(BackendUnavailable):
        make_meters(connection, tmp_path).samples(["one"])


def test_a_call_that_a_machine_blocks_is_left_to_its_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "_ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(meters, "_BLOCKED_MAX", 2)
    connection, answers = FakeConnection(one=RUNNING, two=RUNNING, three=RUNNING), threading.Event()
    made, real = make_meters(connection, tmp_path), connection.domainListGetStats

    def block(*arguments: Any) -> Any:
        answers.wait(20)
        return real(*arguments)

    monkeypatch.setattr(connection, "domainListGetStats", block)
    for reason in ("does not answer", "does not answer", "Too many"):
        with pytest.raises(BackendUnavailable, match=reason):
            made.samples(["one", "two"])
    answers.set()
    for call, _ in made._blocked:
        call.result(120)
    assert set(made.samples(["one"])) == {"one"}


def test_a_machine_whose_own_call_is_blocked_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meters, "_ANSWER_SECONDS", 0.1)
    connection, answers = FakeConnection(one=RUNNING, two=RUNNING), threading.Event()
    made, real = make_meters(connection, tmp_path), connection.domainListGetStats

    def block(domains: list[FakeDomain], *flags: int) -> Any:
        if domains[0].machine_id == "one":
            answers.wait(20)
        return real(domains, *flags)

    monkeypatch.setattr(connection, "domainListGetStats", block)
    for _ in range(3):
        with pytest.raises(BackendUnavailable, match="does not answer"):
            made.samples(["one"])
    assert len(made._blocked) == 1
    assert set(made.samples(["one", "two"])) == {"two"}
    answers.set()
    made._blocked[0][0].result(120)
    assert set(made.samples(["one", "two"])) == {"one", "two"}


def test_machines_whose_own_calls_are_blocked_do_not_hold_up_a_call_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meters, "_ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(meters, "_BLOCKED_MAX", 1)
    connection, answers = FakeConnection(one=RUNNING, two=RUNNING, three=RUNNING, four=RUNNING), threading.Event()
    made, real = make_meters(connection, tmp_path), connection.domainListGetStats

    def block(domains: list[FakeDomain], *flags: int) -> Any:
        if domains[0].machine_id in ("one", "two"):
            answers.wait(20)
        return real(domains, *flags)

    monkeypatch.setattr(connection, "domainListGetStats", block)
    for machine_id in ("one", "two"):
        with pytest.raises(BackendUnavailable, match="does not answer"):
            made.samples([machine_id])
    assert set(made.samples(["three", "four"])) == {"three", "four"}
    answers.set()


def test_counters_that_libvirt_could_not_read_are_no_sample(tmp_path: Path) -> None:
    """Without its disks' counters, which it leaves out while a job has the machine."""
    partial = {name: value for name, value in RUNNING.items() if not name.startswith(("block.0", "block.1"))}
    samples = make_meters(FakeConnection(one=partial | {"block.0.name": "vda"}, two=RUNNING), tmp_path)
    assert samples.samples(["one", "two"]).keys() == {"two"}


def test_counters_read_while_the_process_was_replaced_are_no_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = FakeConnection(one=RUNNING)
    made, real = make_meters(connection, tmp_path), connection.domainListGetStats
    (tmp_path / "one").touch()

    def replace_process(*arguments: Any) -> Any:
        found = real(*arguments)
        (tmp_path / "new").touch()
        (tmp_path / "new").replace(tmp_path / "one")
        return found

    monkeypatch.setattr(connection, "domainListGetStats", replace_process)
    assert made.samples(["one"]) == {}
    monkeypatch.undo()
    assert made.samples(["one"]).keys() == {"one"}


def test_a_new_process_has_a_new_generation(tmp_path: Path) -> None:
    meters = make_meters(FakeConnection(one=RUNNING), tmp_path)
    assert meters.samples(["one"])["one"].generation == ""  # no socket yet
    (tmp_path / "one").touch()
    first = meters.samples(["one"])["one"].generation
    assert meters.samples(["one"])["one"].generation == first
    (tmp_path / "new").touch()
    (tmp_path / "new").replace(tmp_path / "one")
    assert meters.samples(["one"])["one"].generation not in ("", first)


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ([{"mountpoint": "/run/kit/data", "used-bytes": 5, "total-bytes": 10}], GuestDisk(5, 10)),
        ([{"mountpoint": "/"}, {"mountpoint": "/run/kit/data", "used-bytes": 0, "total-bytes": 0}], GuestDisk(0, 0)),
        (
            [{"mountpoint": "/run/kit/data", "used-bytes": HUGE, "total-bytes": HUGE}],
            GuestDisk(64 * MIB, 64 * MIB),
        ),
        ([{"mountpoint": "/run/kit/data", "used-bytes": -1, "total-bytes": 10}], GuestDisk(0, 10)),
    ],
)
def test_the_disk_is_the_data_mount_within_what_the_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reported: Any, expected: GuestDisk
) -> None:
    monkeypatch.setattr(agent, "send_command", lambda *arguments: json.loads(json.dumps(reported)))
    assert make_meters(FakeConnection(one=RUNNING), tmp_path).guest_disk("one", 1) == expected


@pytest.mark.parametrize(
    "reported",
    [None, 7, "text", {}, [], [7], [{"mountpoint": "/"}], [{"mountpoint": "/run/kit/data"}],
     [{"mountpoint": "/run/kit/data", "used-bytes": "5", "total-bytes": 10}]],
)  # fmt: skip
def test_invalid_file_system_info_raises_guest_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reported: Any
) -> None:
    monkeypatch.setattr(agent, "send_command", lambda *arguments: reported)
    with pytest.raises(GuestUnreachable):
        make_meters(FakeConnection(one=RUNNING), tmp_path).guest_disk("one", 1)


FSINFO = '{"return": [{"mountpoint": "/run/kit/data", "used-bytes": 5, "total-bytes": 10}]}'


@pytest.mark.parametrize(
    "answer",
    ["", "{", "[]", "7", '{"return": ' + "[" * 100_000, '{"return": ' + "9" * 5000 + "}", FSINFO + " " * 65536],
    ids=["empty", "half", "list", "number", "deep", "long number", "long"],
)  # fmt: skip
def test_an_invalid_agent_reply_raises_guest_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr(agent.libvirt_qemu, "qemuAgentCommand", lambda *arguments: answer)
    with pytest.raises(GuestUnreachable):
        make_meters(FakeConnection(one=RUNNING), tmp_path).guest_disk("one", 1)


def test_disk_usage_of_a_stopped_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "state_of", lambda target: None)
    with pytest.raises(InvalidMachineState):
        make_meters(FakeConnection(one=RUNNING), tmp_path).guest_disk("one", 1)
