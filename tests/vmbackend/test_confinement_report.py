"""What `make doctor` says about a host on which confinement does not hold."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest

pytest.importorskip("libvirt")
from vmbackend.libvirt import confinement_report
from vmbackend.libvirt.confinement_check import Line
from vmbackend.uids import UidRange

UIDS = UidRange(5000, IPv4Network("10.9.0.0/24"))


def _line(name):
    (found,) = [line for line in confinement_report.host_lines(UIDS) if line.name == name]
    return found


@pytest.mark.parametrize(("rows", "holds"), [("0 0 4294967295", True), ("0 100000 65536", True), ("0 0 5000", False)])
def test_a_container_must_map_the_user_ids(tmp_path, monkeypatch, rows, holds):
    (tmp_path / "uid_map").write_text(rows + "\n")
    monkeypatch.setattr(confinement_report, "_UID_MAP", tmp_path / "uid_map")
    assert _line("user ids").holds is holds


def test_control_groups_without_a_controller_are_reported_as_optional(tmp_path, monkeypatch):
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    monkeypatch.setattr(confinement_report, "CGROUPS", tmp_path)
    assert _line("cgroup memory").holds
    missing = _line("cgroup io")
    assert (missing.holds, missing.found, missing.needed) == (False, "missing", False)


def test_a_machine_of_an_earlier_version_is_reported_with_what_to_do(tmp_path, monkeypatch):
    tables = {"mvm-a": [Line("no capability", True, "none")], "mvm-b": [Line("no capability", False, "CapEff 1ff")]}
    processes = [type("Process", (), {"name": name}) for name in tables]
    monkeypatch.setattr(confinement_report, "find_processes", lambda *_: processes)
    monkeypatch.setattr(confinement_report, "read_confinement", lambda process, _: tables[process.name])
    (line,) = confinement_report.machine_lines("abcdef", tmp_path, UIDS)
    assert (line.holds, line.needed, line.found) == (False, True, "1 of 2; CapEff 1ff")
    assert "stop and start" in line.fix


def test_without_machines_the_table_says_so_and_nothing_is_missing(tmp_path):
    (line,) = confinement_report.machine_lines("ffffff", tmp_path, UIDS)
    assert (line.holds, line.needed) == (False, False)
