"""Entries of the image cache that another version of the platform has written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.vmbackend.registry import push, running_registry
from tests.vmbackend.stores import CONFIG, insecure_store, partial_work, pull, rootfs, store
from vmbackend.images.build import add_directory_image
from vmbackend.images.store import Image, ImageStore

__all__ = ["rootfs", "store"]
pytestmark = pytest.mark.host
FULL = replace(CONFIG, stop_signal="SIGINT")


def stored(image: Image) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads(image.rootfs.with_name("image.json").read_bytes())
    return entry


def make_old(image: Image) -> None:
    """As a version stored it that did not know these fields."""
    entry = stored(image)
    del entry["config"]["stop_signal"], entry["config"]["volumes"], entry["changes"]
    image.rootfs.with_name("image.json").write_text(json.dumps(entry))


def identity(image: Image) -> tuple[int, int]:
    status = image.rootfs.stat()
    return status.st_ino, status.st_mtime_ns


def test_fields_of_a_later_version_are_ignored(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    image = pull(store, "localhost/tiny")
    entry = stored(image)
    entry["config"]["of_tomorrow"] = entry["of_tomorrow"] = 1
    image.rootfs.with_name("image.json").write_text(json.dumps(entry))
    assert store.get(image.digest) == pull(store, "localhost/tiny") == image
    assert store.list() == [image]


@pytest.mark.parametrize("by_digest", [True, False])
def test_an_old_entry_gets_what_it_lacks_and_keeps_its_disk(
    store: ImageStore, rootfs: Path, tmp_path: Path, by_digest: bool
) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, FULL)
    image = pull(store, "localhost/tiny")
    make_old(image)
    made = identity(image)
    again = ImageStore(tmp_path / "root", store.settings)
    lacking = again.get(image.digest)
    assert lacking is not None
    assert (lacking.config.stop_signal, lacking.config.volumes) == ("", ())
    assert pull(again, f"localhost/tiny@{image.digest}" if by_digest else "localhost/tiny") == image
    assert image.config == FULL
    assert again.get(image.digest) == image
    assert identity(image) == made
    assert not partial_work(tmp_path / "root")


def test_an_old_entry_is_used_while_its_registry_does_not_answer(
    store: ImageStore, rootfs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And the registry is not asked again for every machine, but after the next start of the process."""
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, FULL)
    with running_registry(tmp_path / "registry") as address:
        push(tmp_path / "oci", "localhost/tiny:latest", f"{address}/app:1")
        image = pull(insecure_store(store, tmp_path, address), f"{address}/app:1")
    make_old(image)
    later = insecure_store(store, tmp_path, address)
    for _ in range(3):
        assert pull(later, f"{address}/app@{image.digest}").config == replace(FULL, stop_signal="", volumes=())
    assert len([record for record in caplog.records if "an earlier version stored" in record.message]) == 1
    assert not partial_work(tmp_path / "root")
