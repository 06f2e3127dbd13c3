"""Backups that were damaged or made to deceive, places that overlap, clocks that go back, odd settings."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from supervise.backup import save
from supervise.backup.databases import _libpq
from supervise.backup.restore import restore_backup
from supervise.backup.save import back_up
from supervise.instance import Instance, InstanceError, load_instance
from tests.commands.backups import ASLEEP, STOPPED, assert_is_restored, silent, write

pytestmark = pytest.mark.usefixtures("own_server")
LIES: list[tuple[str, Any]] = [
    ("omitted", [""]), ("omitted", ["../x"]), ("machines", "ws_a"), ("earlier", None), ("instance", "../../etc"),
    ("instance", "*"), ("state", ""), ("state", "/"), ("state", "relative"), ("state", "/a/../b"), ("short", "/\n"),
    ("subnet", "everywhere"), ("subnet", None), ("host_name", "x'\nPLATFORM_DEBUG='yes"),
    ("migrations", None), ("migrations", [1]), ("digest", 5), ("files", "many"), ("format", 1.5),
]  # fmt: skip
NONE = ["", "[]", "{}", "null", "[" * 100_000, '{"format": 2}']


def test_a_manifest_that_lies_is_refused_and_nothing_is_written(
    original: Instance, backups: Path, target: Path
) -> None:
    made = back_up(original, str(backups), silent)
    values = json.loads((made / "manifest.json").read_text())
    for text in [*(json.dumps({**values, name: value}) for name, value in LIES), *NONE]:
        (made / "manifest.json").write_text(text)
        with pytest.raises(InstanceError, match=r"manifest\.json|format"):
            restore_backup(str(made), str(target), "", silent)
        assert not target.exists()


def test_links_and_devices_are_compared_as_files_are(original: Instance, backups: Path, target: Path) -> None:
    link = original.state / "pages" / "live"
    link.symlink_to("releases/r1")
    made = back_up(original, str(backups), silent)
    copied = made / "state" / "pages" / "live"

    def is_refused(name: str) -> None:
        with pytest.raises(InstanceError, match=name):
            restore_backup(str(made), str(target), "", silent)
        assert not target.exists()

    copied.unlink()
    is_refused("state/pages/live")
    copied.symlink_to("/etc")
    is_refused("state/pages/live")
    copied.unlink()
    copied.symlink_to("releases/r1")
    (made / "state" / "added").symlink_to("/etc/passwd")
    is_refused("state/added")
    (made / "state" / "added").unlink()
    os.mknod(made / "state" / "disk", 0o600 | 0o060000, os.makedev(7, 250))
    is_refused("state/disk")
    (made / "state" / "disk").unlink()
    restore_backup(str(made), str(target), "", silent)
    assert (target / "pages" / "live").readlink() == Path("releases/r1")
    assert_is_restored(target)


def test_a_link_among_the_machines_is_no_machine(original: Instance, backups: Path, target: Path) -> None:
    outside = target.with_name("outside")
    write(outside / "data.raw", "of another")
    write(outside / "machine.json", "{}")
    (original.state / "machines" / "ws_dddddddddddddddd").symlink_to(outside)
    made = back_up(original, str(backups), silent)
    assert {path.name for path in (made / "machines").iterdir()} == {ASLEEP, STOPPED}
    (made / "machines" / "ws_eeeeeeeeeeeeeeee").symlink_to(outside)
    with pytest.raises(InstanceError, match="ws_eeeeeeeeeeeeeeee"):
        restore_backup(str(made), str(target), "", silent)


def test_names_with_line_breaks_and_other_bytes_are_restored(original: Instance, backups: Path, target: Path) -> None:
    names = ["a\nb", "c\\012", " -e x", os.fsdecode(b"\xff\xfe"), "*", "\u2028"]
    for name in names:
        write(original.state / "cdn" / name, name.encode("utf-8", "surrogateescape").hex())
    restore_backup(str(back_up(original, str(backups), silent)), str(target), "", silent)
    for name in names:
        assert (target / "cdn" / name).read_text() == name.encode("utf-8", "surrogateescape").hex()


def test_folders_whose_names_begin_alike_are_in_the_backup(
    original: Instance, backups: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting that names a folder `p` leaves out that one, and not `pages`."""
    (original.state / "machines").rename(original.state / "p")
    (original.state / "cache").rename(original.state / "[k]*")
    with monkeypatch.context() as patch:
        patch.setenv("PLATFORM_MACHINES_DIR", str(original.state / "p"))
        patch.setenv("PLATFORM_CACHE_DIR", str(original.state / "[k]*"))
        made = back_up(original, str(backups), silent)
    found = {path.name for path in (made / "state").iterdir()}
    assert {"pages", "cdn", "keys"} <= found
    assert not {"p", "[k]*"} & found
    restore_backup(str(made), str(target), "", silent)
    assert_is_restored(target)


def test_a_backup_is_made_in_no_folder_that_it_copies_and_in_no_other_backup(
    original: Instance, backups: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = back_up(original, str(backups), silent)
    before = sorted(made.rglob("*"))
    for place in (made, made / "state", made / "new"):
        with pytest.raises(InstanceError, match="is a backup itself"):
            back_up(original, str(place), silent)
    assert sorted(made.rglob("*")) == before
    elsewhere = target.with_name("cache")
    monkeypatch.setenv("PLATFORM_CACHE_DIR", str(elsewhere))
    with pytest.raises(InstanceError, match="cannot be inside"):
        back_up(original, str(elsewhere / "images" / "images" / "backups"), silent)


def test_a_backup_is_not_restored_into_itself(original: Instance, backups: Path, target: Path) -> None:
    made = back_up(original, str(backups), silent)
    with pytest.raises(InstanceError, match="inside the backup"):
        restore_backup(str(made), str(made / "restored"), "", silent)
    restore_backup(str(made), str(target), "", silent)


def test_a_clock_that_was_set_back_costs_no_backup(
    original: Instance, backups: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime(2026, 1, 1, tzinfo=UTC)

    monkeypatch.setattr(save, "datetime", Stopped)
    first = back_up(original, str(backups), silent)
    write(original.state / "cdn" / "store" / "ab" / "file", "cdn, and more")
    second, third = back_up(original, str(backups), silent), back_up(original, str(backups), silent)
    assert [path.name for path in sorted(backups.iterdir())] == [first.name, second.name, third.name]
    assert (first / "state/cdn/store/ab/file").read_text() == "cdn"
    assert (second / "state/cdn/store/ab/file").samefile(third / "state/cdn/store/ab/file")
    restore_backup(str(second), str(target), "", silent)
    assert_is_restored(target)


@pytest.mark.parametrize("text", ["it's a\\b a\\'b # \"$HOME\"", "end\\"])
def test_a_setting_is_kept_as_it_was_given(
    original: Instance, backups: Path, target: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    made = str(back_up(original, str(backups), silent))
    machines = target.with_name(f"machines {text}")
    monkeypatch.setenv("PLATFORM_MACHINES_DIR", str(machines))
    restore_backup(made, str(target), "", silent)
    monkeypatch.delenv("PLATFORM_MACHINES_DIR")
    assert load_instance(target).settings().machines_dir == machines
    assert (machines / ASLEEP / "memory").read_text() == "memory"


def test_the_certificate_of_a_postgresql_client_reaches_its_programs() -> None:
    url = "postgresql://u:pa%3Ass@db:5432/name?sslmode=verify-full&sslcert=/c&sslkey=/k&channel_binding=require"
    found = _libpq(url)
    assert (found["PGSSLCERT"], found["PGSSLKEY"], found["PGCHANNELBINDING"]) == ("/c", "/k", "require")
    assert (found["PGPASSWORD"], found["PGDATABASE"]) == ("pa:ss", "name")
