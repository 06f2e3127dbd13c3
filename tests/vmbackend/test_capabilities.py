"""Capabilities of a host's QEMU and libvirt, as they say themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vmbackend.capabilities import HostCapabilities
from vmbackend.libvirt.capabilities import ask_programs, find_qemu, read_answers


def _answers(version: tuple[int, int, int], migration: list[str], properties: list[str]) -> str:
    major, minor, micro = version
    lines = [
        {"QMP": {}},
        {"return": {}},
        {"id": "version", "return": {"qemu": {"major": major, "minor": minor, "micro": micro}}},
        {"id": "migration", "return": [{"capability": name, "state": False} for name in migration]},
        {"id": "memory", "return": [{"name": name, "type": "bool"} for name in properties]},
        {"event": "SHUTDOWN"},
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_an_old_qemu_has_none_of_the_new_capabilities() -> None:
    found = read_answers(_answers((7, 2, 22), ["multifd", "x-ignore-shared"], ["share", "readonly"]))
    assert found == HostCapabilities(qemu="7.2.22")


def test_a_new_qemu_has_those_that_it_names() -> None:
    found = read_answers(_answers((10, 0, 2), ["mapped-ram", "x-ignore-shared"], ["share", "readonly", "rom"]))
    assert (found.qemu, found.mapped_ram, found.mapped_templates) == ("10.0.2", True, True)


def test_mapped_templates_need_both_answers() -> None:
    found = read_answers(_answers((10, 0, 2), ["mapped-ram"], ["share", "readonly", "rom"]))
    assert found.mapped_ram
    assert not found.mapped_templates


@pytest.mark.parametrize("text", ["", "echo no answer", "exit 1", 'echo \'{"id": "version"}\''])
def test_a_qemu_that_does_not_answer_is_unknown(tmp_path: Path, text: str) -> None:
    program = tmp_path / "qemu"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    assert find_qemu(str(program)) == HostCapabilities()


def test_a_missing_qemu_is_unknown(tmp_path: Path) -> None:
    assert find_qemu(str(tmp_path / "qemu")) == HostCapabilities()


def test_this_hosts_programs_answer() -> None:
    found = ask_programs()
    assert found.qemu.count(".") == found.libvirt.count(".") == 2
