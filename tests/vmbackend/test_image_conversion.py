"""What a pull takes over from tools and registries that were written or taken over by an attacker."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vmbackend.errors import ImageBroken
from vmbackend.images import convert
from vmbackend.images.image_config import MAX_VOLUMES, config_changes, parse_config
from vmbackend.images.process import CompletedTool
from vmbackend.images.types import ImageSettings, Job, never_cancelled

DISK = "rootfs.squashfs"


def symbolic_link(packed: Path, outside: Path) -> None:
    (packed / DISK).symlink_to(outside)


def hard_link(packed: Path, outside: Path) -> None:
    (packed / DISK).hardlink_to(outside)


def fifo(packed: Path, outside: Path) -> None:
    os.mkfifo(packed / DISK)


def folder(packed: Path, outside: Path) -> None:
    (packed / DISK).mkdir()


def nothing(packed: Path, outside: Path) -> None:
    pass


Write = Callable[[Path, Path], None]


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Write], None]:
    """Writes the base disk with a program that does something else; its user is the one of the tests."""
    outside = tmp_path / "outside"
    outside.write_text("of the host")
    outside.chmod(0o600)
    scratch = tmp_path / "scratch"
    (scratch / "rootfs").mkdir(parents=True)

    def pack(write: Write) -> None:
        def run(*_: Any, **__: Any) -> CompletedTool:
            write(scratch / "packed", outside)
            return CompletedTool(0, b"", "", truncated=False)

        monkeypatch.setattr(convert, "run_confined_tool", run)
        job = Job(lambda *_: None, time.monotonic() + 60, never_cancelled)
        convert._pack(scratch, ImageSettings(min_free_bytes=0), job)

    monkeypatch.setattr(convert, "give_to_tools", lambda path: None)
    monkeypatch.setattr(convert, "TOOL_UID", os.geteuid(), raising=False)
    return pack


@pytest.mark.parametrize("write", [symbolic_link, hard_link, fifo, folder, nothing])
def test_only_a_file_of_the_tool_becomes_a_base_disk(
    pack: Callable[[Write], None], tmp_path: Path, write: Write
) -> None:
    with pytest.raises(ImageBroken, match="base disk could not be written"):
        pack(write)
    assert not os.path.lexists(tmp_path / "scratch" / DISK)
    assert (tmp_path / "outside").stat().st_mode & 0o777 == 0o600


def test_a_file_of_another_user_does_not_become_a_base_disk(
    pack: Callable[[Write], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert, "TOOL_UID", os.geteuid() + 1, raising=False)
    with pytest.raises(ImageBroken):
        pack(lambda packed, _: (packed / DISK).touch())


def test_the_base_disk_is_readable_and_of_the_platform(pack: Callable[[Write], None], tmp_path: Path) -> None:
    def write(packed: Path, _: Path) -> None:
        (packed / DISK).write_text("disk")
        (packed / DISK).chmod(0o4777)

    pack(write)
    made = tmp_path / "scratch" / DISK
    with made.open() as disk:
        assert disk.read(6) == "disk\0\0"
    assert made.stat().st_size == convert.BASE_DISK_STEP
    assert made.stat().st_blocks * 512 < 1 << 20, "the rest is a hole"
    assert (made.stat().st_mode & 0o7777, made.stat().st_uid) == (0o644, os.geteuid())


@pytest.mark.parametrize(
    "document",
    [
        '{"config": [1]}',
        '{"config": {"ExposedPorts": 5}}',
        '{"config": {"ExposedPorts": ["80/tcp"]}}',
        '{"config": {"ExposedPorts": [1, "a"]}}',
        '{"config": {"Labels": ["x"]}}',
        '{"config": {"Labels": {"x": 1}}}',
        '{"config": {"Env": {"A": "1"}}}',
        '{"config": {"Env": ["A=\\ud800"]}}',
        '{"config": {"Labels": {"\\udfff": "x"}}}',
        '{"config": {"Cmd": ["a\\u0000"]}}',
        '{"config": {"WorkingDir": 5}}',
        '{"config": {"Volumes": ["/data"]}}',
        '{"config": {"Volumes": {"/\\ud800": {}}}}',
    ],
)
def test_a_configuration_of_other_types_or_broken_text_is_damaged(document: str) -> None:
    with pytest.raises(ImageBroken, match="configuration is damaged"):
        parse_config(json.loads(document))


def test_what_of_a_configuration_is_not_followed_is_said() -> None:
    volumes = {f"/{number}": {} for number in range(MAX_VOLUMES)} | {"/last": {}, "/" + "n" * 2000: {}, "": {}}
    config = {"Healthcheck": {"Test": ["CMD", "true"]}, "Volumes": volumes, "Env": ["=x", "A=1"]}
    assert config_changes({"config": config}) == [
        "left out: the image's health check, which is not run",
        f"left out: 3 of the image's {MAX_VOLUMES + 3} volumes, whose folders are not made",
        "left out: variables of the environment without a name",
    ]
    parsed = parse_config({"config": config})
    assert (parsed.volumes, parsed.env) == (tuple(volumes)[:MAX_VOLUMES], {"A": "1"})


@pytest.mark.parametrize(
    "config", [None, {}, {"Healthcheck": {"Test": ["NONE"]}}, {"Healthcheck": None, "Volumes": None}]
)
def test_of_what_is_followed_nothing_is_said(config: dict[str, Any] | None) -> None:
    assert config_changes({"config": config}) == []


def test_absent_parts_of_a_configuration_are_empty() -> None:
    empty = parse_config({})
    assert empty == parse_config({"config": None})
    assert empty == parse_config({"config": {"Env": None, "ExposedPorts": None, "Labels": None}})
