"""The chain of a disk in records and definitions."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from vmbackend.driver import NetworkPolicy
from vmbackend.libvirt.domainxml import domain_xml
from vmbackend.libvirt.identity import give_identity, has_values, identity_values, rename_values, shape_of
from vmbackend.libvirt.layers import allocated_bytes, chain_values, disk_bytes, remove_others
from vmbackend.libvirt.record import Chain, Layer, MachineDir, Record

from .test_domainxml import DEFINITION

RECORD = Record("m1", "10.0.0.9", "sha256:1", 1.0, 512, 64, NetworkPolicy())
CHAIN = Chain((Layer("data.raw", "raw"), Layer("data-1.qcow2", "qcow2"), Layer("data-2.qcow2", "qcow2")))
LAYERS = tuple((layer.format, Path("/m/m1", layer.file)) for layer in CHAIN.layers)


def test_a_record_of_an_earlier_version_has_one_raw_file() -> None:
    raw = asdict(RECORD)
    del raw["chain"]
    assert Record.from_json(json.loads(json.dumps(raw))) == RECORD
    assert RECORD.chain.is_flat


def test_a_record_keeps_its_chain(short: Path) -> None:
    files = MachineDir(short, "m1")
    files.create()
    files.write_record(record := replace(RECORD, chain=replace(CHAIN, taken="s1", file_system_mb=32)))
    assert files.read_record() == record
    assert files.top_disk() == files.path / "data-2.qcow2"
    assert disk_bytes(files) == 64 << 20


def test_a_definition_names_each_file_and_its_format_and_that_there_are_no_more() -> None:
    xml = domain_xml(replace(DEFINITION, data_layers=LAYERS))
    backing = "".join(xml.split('<backingStore type="file">')[1:])
    assert xml.index("data-2.qcow2") < xml.index("data-1.qcow2") < xml.index("data.raw")
    assert '<format type="qcow2" />' in backing
    assert '<format type="raw" />' in backing
    assert xml.count("<backingStore />") == 1
    assert "backingStore" not in domain_xml(DEFINITION)


def test_chains_are_identity_and_no_shape() -> None:
    flat, layered = domain_xml(DEFINITION), domain_xml(replace(DEFINITION, data_layers=LAYERS))
    assert shape_of(flat) == shape_of(layered)
    assert identity_values(give_identity(flat, identity_values(layered))) == identity_values(layered)
    assert identity_values(give_identity(layered, identity_values(flat))) == identity_values(flat)
    values = chain_values(MachineDir(Path("/m"), "m1"), CHAIN, lambda path: path)
    assert has_values(layered, values)
    assert not has_values(flat, values)
    assert has_values(rename_values(flat, values), values)


def test_files_that_are_of_no_chain_are_removed(short: Path) -> None:
    files = MachineDir(short, "m1")
    files.create()
    for name in ("data.raw", "data-1.qcow2", "data-2.qcow2", "data-3.raw", "data.new", "memory"):
        (files.path / name).write_bytes(bytes(8192))
    assert allocated_bytes(files) >= 5 * 8192
    remove_others(files, CHAIN)
    left = {path.name for path in files.path.iterdir() if path.is_file()}
    assert left == {"data.raw", "data-1.qcow2", "data-2.qcow2", "memory"}
