"""`make backup`: what is copied, what is left out and named, a process that is killed at any step, a full disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from supervise.backup import save
from supervise.backup.digests import digest_of
from supervise.backup.manifest import read_manifest
from supervise.backup.restore import restore_backup
from supervise.backup.save import back_up
from supervise.instance import Instance, InstanceError, load_instance
from tests.commands.backups import (
    ASLEEP,
    DISK_MB,
    STOPPED,
    assert_is_restored,
    running_machine,
    silent,
    things,
    was_killed_at,
    write,
)
from tests.commands.own_servers import remove_database
from tests.small_disk import small_disk
from vmbackend.machines_folder import UNASSIGNED

pytestmark = pytest.mark.usefixtures("own_server")


def test_what_is_restored_into_another_folder_is_the_instance(original: Instance, backups: Path, target: Path) -> None:
    made = restore_backup(str(back_up(original, str(backups), silent)), str(target), "8123", silent)
    assert_is_restored(target)
    again = load_instance(target)
    assert (again.id, again.subnet, again.port) == (original.id, original.subnet, 8123)
    assert made == again
    definition = (target / "libvirt" / "etc" / "qemu" / f"{ASLEEP}.xml").read_text()
    assert f"'{target}/machines/{ASLEEP}/data.raw'" in definition


def test_snapshots_and_layers_of_disks_are_restored_and_templates_are_not(
    original: Instance, backups: Path, target: Path
) -> None:
    write(original.state / "machines" / STOPPED / "data-1.qcow2", "above")
    restore_backup(str(back_up(original, str(backups), silent)), str(target), "8123", silent)
    store = target / "machines" / ".store"
    assert {path.name for path in store.iterdir()} == {"snap_one"}
    assert (store / "snap_one" / "disk-0.raw").read_text() == "of the store"
    assert (target / "machines" / STOPPED / "data-1.qcow2").read_text() == "above"


def test_a_backup_sees_that_a_layer_has_changed(original: Instance, backups: Path) -> None:
    layer = original.state / "machines" / STOPPED / "data-1.qcow2"
    write(layer, "above")
    first = back_up(original, str(backups), silent)
    first.rename(first.with_name(f"2020-01-01T00-00-00-{original.id}"))
    write(layer, "other")
    second = back_up(original, str(backups), silent)
    assert (second / "machines" / STOPPED / "data-1.qcow2").read_text() == "other"


def test_only_its_owner_can_read_a_backup(original: Instance, backups: Path) -> None:
    made = back_up(original, str(backups), silent)
    assert [path.stat().st_mode & 0o777 for path in (backups, made)] == [0o700, 0o700]
    for name in ("manifest.json", "files.sha256", "database.dump", "state/secrets.env"):
        assert (made / name).stat().st_mode & 0o777 == 0o600, name


def test_a_second_backup_takes_room_for_what_has_changed_only(original: Instance, backups: Path) -> None:
    first = back_up(original, str(backups), silent)
    write(original.state / "machines" / STOPPED / "data.raw", "another disk")
    first = first.rename(first.with_name(f"2020-01-01T00-00-00-{original.id}"))
    second = back_up(original, str(backups), silent)
    for name in (f"machines/{ASLEEP}/data.raw", f"machines/{ASLEEP}/memory", "state/cdn/store/ab/file"):
        assert (first / name).samefile(second / name), name
    assert (second / "machines" / STOPPED / "data.raw").read_text() == "another disk"
    assert (first / "machines" / STOPPED / "data.raw").stat().st_size == DISK_MB << 20


def test_a_running_machine_is_left_out_and_named(original: Instance, backups: Path) -> None:
    with running_machine(original.id, STOPPED):
        found = read_manifest(back_up(original, str(backups), silent))
    assert (found.machines, found.omitted, found.earlier) == ([ASLEEP], [STOPPED], [])


def test_a_machine_that_belongs_to_nobody_is_left_out(original: Instance, backups: Path) -> None:
    (original.state / "machines" / STOPPED / UNASSIGNED).touch()
    found = read_manifest(back_up(original, str(backups), silent))
    assert (found.machines, found.omitted, found.earlier) == ([ASLEEP], [], [])


def test_a_machine_that_runs_and_stops_in_between_is_copied_again_with_the_database(
    original: Instance, backups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied, times = save.save_database, list[object]()

    def copy_and_change(*given: Any) -> None:
        copied(*given)
        if not times:
            write(original.state / "machines" / STOPPED / "data.raw", "changed while the database was copied")
        times.append(given)

    monkeypatch.setattr(save, "save_database", copy_and_change)
    made = back_up(original, str(backups), silent)
    assert len(times) == 2
    assert (made / "machines" / STOPPED / "data.raw").read_text().startswith("changed")
    assert read_manifest(made).earlier == []


def test_machines_that_come_and_go_all_the_time_are_named(
    original: Instance, backups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = save.save_database

    def copy_and_change(*given: Any) -> None:
        copied(*given)
        os.utime(original.state / "machines" / STOPPED / "data.raw")

    monkeypatch.setattr(save, "save_database", copy_and_change)
    found = read_manifest(back_up(original, str(backups), silent))
    assert (found.earlier, found.machines) == ([STOPPED], [ASLEEP, STOPPED])


def test_a_file_that_comes_while_the_database_is_copied_is_in_the_backup(
    original: Instance, backups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = save.save_database

    def copy_and_publish(*given: Any) -> None:
        write(original.state / "pages" / "releases" / "r2" / "index.html", "deployed in between")
        copied(*given)

    monkeypatch.setattr(save, "save_database", copy_and_publish)
    made = back_up(original, str(backups), silent)
    assert (made / "state" / "pages" / "releases" / "r2" / "index.html").read_text() == "deployed in between"


def test_a_backup_that_is_killed_at_any_step_goes_on(original: Instance, backups: Path, target: Path) -> None:
    steps = 1
    while was_killed_at(steps, lambda: back_up(original, str(backups), silent)):
        found = complete_ones(backups)
        assert len(found) <= 1
        for folder in found:  # killed after its last step but one: all of it is there
            read_manifest(folder)
            folder.rename(folder.with_name(f".{original.id}.partial"))
        steps += 1
    assert steps > 10
    assert not (backups / f".{original.id}.partial").exists()
    restore_backup(str(complete_ones(backups)[0]), str(target), "", silent)
    assert_is_restored(target)


def complete_ones(backups: Path) -> list[Path]:
    return [path for path in backups.glob("*") if not path.name.startswith(".")]


def test_a_full_disk_ends_a_backup_with_a_sentence_and_it_goes_on_later(
    original: Instance, backups: Path, target: Path
) -> None:
    (original.state / "pages" / "large").write_bytes(os.urandom(2 << 20))
    backups.mkdir()
    with small_disk(backups, 8) as disk:
        disk.fill(leave_mb=1)
        with pytest.raises(InstanceError, match="is full"):
            back_up(original, str(backups), silent)
        assert complete_ones(backups) == [disk.folder / "filling"]
        assert things(original.state) == ["kept"]
        disk.make_room()
        restore_backup(str(back_up(original, str(backups), silent)), str(target), "", silent)
    assert_is_restored(target)


def test_the_hash_of_a_file_does_not_depend_on_its_holes(tmp_path: Path) -> None:
    sparse, full, other = tmp_path / "sparse", tmp_path / "full", tmp_path / "other"
    with sparse.open("wb") as file:
        file.seek(3 << 20)
        file.write(b"x")
        file.truncate(5 << 20)
    full.write_bytes(sparse.read_bytes())
    other.write_bytes(bytes(4 << 20) + b"x" + bytes((1 << 20) - 1))
    assert digest_of(sparse) == digest_of(full)
    assert digest_of(other) != digest_of(full)
    assert digest_of(tmp_path / "sparse") != digest_of(make_file(tmp_path / "shorter", sparse.read_bytes()[:-1]))


def make_file(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_machines_at_another_place_in_the_state_folder_are_copied_once(
    original: Instance, backups: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (original.state / "machines").rename(original.state / "vm")
    with monkeypatch.context() as patch:
        patch.setenv("PLATFORM_MACHINES_DIR", str(original.state / "vm"))
        made = back_up(original, str(backups), silent)
    assert not {"vm", "postgres"} & {path.name for path in (made / "state").iterdir()}
    restore_backup(str(made), str(target), "", silent)
    assert_is_restored(target)


def test_an_instance_without_a_database_has_no_backup(original: Instance, backups: Path) -> None:
    remove_database(original)
    with pytest.raises(InstanceError, match="has no database yet"):
        back_up(original, str(backups), silent)


def test_a_backup_cannot_lie_inside_of_the_instance(original: Instance) -> None:
    with pytest.raises(InstanceError, match="inside the state folder"):
        back_up(original, str(original.state / "backups"), silent)


def test_the_command_says_what_is_missing_without_a_traceback(original: Instance, target: Path) -> None:
    for command in (["backup", ""], ["restore", "", str(target), ""], ["restore", "/nowhere", str(target), ""]):
        done = subprocess.run(
            [sys.executable, "-m", "supervise", *command],
            env={**os.environ, "STATE": str(original.state), "PYTHONPATH": ".:platform"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_the_manifest_counts_what_there_is(original: Instance, backups: Path) -> None:
    made = back_up(original, str(backups), silent)
    found = read_manifest(made)
    assert found.migrations == ["accounts.0001_initial"]
    names = [json.loads(line)[1] for line in (made / "files.sha256").read_text().splitlines()]
    assert found.files == len(names) == len(set(names))
    assert {"database.dump", "state/secrets.env", f"machines/{ASLEEP}/memory"} <= set(names)
