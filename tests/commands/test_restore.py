"""`make restore`: killed at any step, damaged backups, places that are not replaced, two folders of one instance."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from supervise.backup.restore import restore_backup
from supervise.backup.save import back_up
from supervise.control import require_only_folder
from supervise.instance import Instance, InstanceError, load_instance
from tests.commands.backups import (
    ASLEEP,
    STOPPED,
    assert_is_restored,
    fill,
    make_machine,
    running_machine,
    silent,
    was_killed_at,
    write,
)

pytestmark = pytest.mark.usefixtures("own_server")


def test_a_restore_that_is_killed_at_any_step_goes_on(original: Instance, backups: Path, target: Path) -> None:
    made = str(back_up(original, str(backups), silent))
    steps = 1
    while was_killed_at(steps, lambda: restore_backup(made, str(target), "", silent)):
        if (target / "restoring").exists():
            with pytest.raises(InstanceError, match="was interrupted"):
                load_instance(target)
        steps += 1
    assert steps > 10
    assert_is_restored(target)
    assert load_instance(target).id == original.id


def test_a_damaged_backup_is_refused_and_nothing_is_written(
    original: Instance, backups: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = back_up(original, str(backups), silent)
    (made / "state" / "cdn" / "store" / "ab" / "file").write_text("CDN")
    with pytest.raises(InstanceError, match=r"1 files differ from their hashes \(state/cdn/store/ab/file\)"):
        restore_backup(str(made), str(target), "", silent)
    assert not target.exists()
    monkeypatch.setenv("DAMAGED", "yes")
    restore_backup(str(made), str(target), "", silent)
    assert (target / "cdn" / "store" / "ab" / "file").read_text() == "CDN"


@pytest.mark.parametrize("change", ["gone", "added", "list"])
def test_files_that_are_gone_or_were_added_are_damage(
    original: Instance, backups: Path, target: Path, change: str
) -> None:
    made = back_up(original, str(backups), silent)
    if change == "gone":
        (made / "machines" / ASLEEP / "memory").unlink()
    elif change == "added":
        write(made / "state" / "pages" / "foreign", "")
    else:
        (made / "files.sha256").write_text("")
    with pytest.raises(InstanceError, match="is damaged"):
        restore_backup(str(made), str(target), "", silent)


def test_a_backup_of_a_newer_version_is_refused(
    make_instance: Callable[[str], Instance], backups: Path, target: Path
) -> None:
    newer = make_instance("newer")
    fill(newer, (("workspaces", "0001_initial"), ("workspaces", "0999_of_the_future")))
    made = back_up(newer, str(backups), silent)
    with pytest.raises(InstanceError, match=r"a newer version, whose database has workspaces.0999_of_the_future"):
        restore_backup(str(made), str(target), "", silent)
    assert not target.exists()


def test_a_folder_without_a_manifest_is_no_backup(original: Instance, backups: Path, target: Path) -> None:
    made = back_up(original, str(backups), silent)
    (made / "manifest.json").unlink()
    with pytest.raises(InstanceError, match="is not a complete backup"):
        restore_backup(str(made), str(target), "", silent)
    assert not target.exists()


def test_a_backup_is_not_restored_over_anything(original: Instance, backups: Path, target: Path) -> None:
    made = str(back_up(original, str(backups), silent))
    write(target / "file", "somebody's")
    with pytest.raises(InstanceError, match="is not empty"):
        restore_backup(made, str(target), "", silent)
    with pytest.raises(InstanceError, match="is not empty"):
        restore_backup(made, str(original.state), "", silent)
    assert (target / "file").read_text() == "somebody's"


def test_machines_elsewhere_are_not_replaced(
    original: Instance, backups: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = str(back_up(original, str(backups), silent))
    machines = target.with_name("machines")
    (machines / STOPPED).mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setenv("PLATFORM_MACHINES_DIR", str(machines))
        with pytest.raises(InstanceError, match="is not empty"):
            restore_backup(made, str(target), "", silent)
    assert not target.exists()
    restore_backup(made, str(target), "", silent)


def test_settings_that_name_the_folder_of_the_original_name_the_new_one(
    original: Instance, backups: Path, target: Path
) -> None:
    """Otherwise what they name would be looked for, or made, in a folder that is gone."""
    (original.state / "machines").rename(original.state / "vm")
    values = {
        "MACHINES_DIR": f"{original.state}/vm",
        "PAGES_CERTIFICATE": f"{original.state}/certs/one.pem", "PAGES_KEY": f"{original.state}-others/certs/one.key",
    }  # fmt: skip
    write(original.state / "settings.env", "".join(f"PLATFORM_{name}='{value}'\n" for name, value in values.items()))
    write(original.state / "certs" / "one.pem", "certificate")
    restore_backup(str(back_up(original, str(backups), silent)), str(target), "", silent)
    settings = load_instance(target).settings()
    assert settings.machines_dir == target / "vm"
    assert Path(settings.pages_certificate).read_text() == "certificate"
    assert settings.pages_key == values["PAGES_KEY"]
    assert (target / "vm" / STOPPED / "data.raw").exists()


def test_the_original_on_the_same_host_is_an_error_that_names_it(
    original: Instance, backups: Path, target: Path
) -> None:
    made = str(back_up(original, str(backups), silent))
    with (
        running_machine(original.id, make_machine(original, "ws_cccccccccccccccc").name),
        pytest.raises(InstanceError, match=f"CONFIRM=yes STATE={original.state}"),
    ):
        restore_backup(made, str(target), "", silent)
    assert not target.exists()


def test_two_folders_of_one_instance_never_run_or_stop_each_other(
    original: Instance, backups: Path, target: Path
) -> None:
    restored = restore_backup(str(back_up(original, str(backups), silent)), str(target), "", silent)
    environment = {**os.environ, "PLATFORM_SUPERVISED": restored.id, "PLATFORM_STATE": str(restored.state)}
    code = "import time; print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            require_only_folder(restored)
            with pytest.raises(InstanceError, match=f"runs from {restored.state}"):
                require_only_folder(original)
        finally:
            process.kill()


def test_two_restores_into_one_folder_do_not_run_at_once(original: Instance, backups: Path, target: Path) -> None:
    made = str(back_up(original, str(backups), silent))
    target.mkdir()
    held = os.open(target, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(InstanceError, match="is under way"):
        restore_backup(made, str(target), "", silent)
    os.close(held)
    restore_backup(made, str(target), "", silent)
    assert_is_restored(target)
