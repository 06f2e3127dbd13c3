"""`make backup`: a folder with one state of an instance, made while it runs.

Files that never change once they are there (releases of pages, files of the CDN, images) are copied before the database
and once more after it, so that all that the database names is there. The disks of machines come before it: what has no
row any more is removed at the restored instance's start, and what has a row has its disk. An interrupted backup goes on
where it was: what is complete has a manifest and a name, `<time>-<instance>`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from config.env import Env
from supervise.backup.copying import copy_folder
from supervise.backup.databases import kind_of, save_database
from supervise.backup.machines import machine_folders, save_machine
from supervise.backup.manifest import NAME, Manifest
from supervise.control import exclusive_control
from supervise.instance import Instance, InstanceError

# Of the state folder: what each start makes, and what is copied on its own.
NOT_STATE = (
    *("/run", "/log", "/static", "/reserve", "/libvirt", "/cache", "/machines", "/instance.json"),
    *("/db.sqlite3*", "/.*", "/tmp?*"),  # noqa: S108 - a pattern
)
# Of the kit's folder: what it was built from.
NOT_KIT = ("/debs", "/.*")


def back_up(instance: Instance, target: str, say: Callable[[str], None]) -> Path:
    """Write a backup below the folder `target`; returns its folder. Raises InstanceError, OSError.

    Dies half way: `.<instance>.partial` stays, and the next call goes on with it.
    """
    place = _place(instance, target)
    settings = instance.settings()
    with exclusive_control(instance, "backup"):
        partial, former = place / f".{instance.id}.partial", _latest(place, instance.id)
        partial.mkdir(mode=0o700, exist_ok=True)
        _save_files(instance, settings, partial, former, delete=True)
        say("files: copied")
        saved, omitted = _save_machines(instance, settings, partial, former)
        say(f"machines: {len(saved)} copied, {len(omitted)} run and are left out")
        save_database(settings.database_url, partial)
        _save_files(instance, settings, partial, former, delete=False)
        now = datetime.now(UTC)
        _manifest(instance, settings, now, saved, omitted).write(partial)
        os.sync()
        return partial.rename(place / f"{now:%Y-%m-%dT%H-%M-%S}-{instance.id}")


def _place(instance: Instance, target: str) -> Path:
    if not target:
        raise InstanceError("Name the folder of backups: make backup TO=/srv/backups")
    place = Path.cwd() / target
    if place.resolve().is_relative_to(instance.state.resolve()):
        raise InstanceError("The folder of backups cannot be inside of the state folder.")
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place


def _latest(place: Path, instance_id: str) -> Path | None:
    found = [path for path in place.glob(f"????-*-{instance_id}") if (path / NAME).exists()]
    return max(found, default=None)


def _save_files(instance: Instance, settings: Env, target: Path, former: Path | None, *, delete: bool) -> None:
    folders = {
        "state": (instance.state, NOT_STATE),
        "definitions": (instance.state / "libvirt" / "etc" / "qemu", ()),
        "images": (settings.images_dir / "images", ()),
        "kit": (settings.kit_dir, NOT_KIT),
    }
    for name, (source, exclude) in folders.items():
        link = former / name if former else None
        copy_folder(source, target / name, exclude=exclude, former=link, delete=delete)


def _save_machines(instance: Instance, settings: Env, target: Path, former: Path | None) -> tuple[list[str], list[str]]:
    saved: list[str] = []
    omitted: list[str] = []
    for folder in machine_folders(settings.machines_dir):
        known = former / "machines" / folder.name if former else None
        done = save_machine(instance.id, folder, target / "machines" / folder.name, known)
        (saved if done else omitted).append(folder.name)
    _remove_others(target / "machines", saved)
    return saved, omitted


def _remove_others(machines: Path, saved: list[str]) -> None:
    """What a backup that was interrupted had copied of machines that run by now."""
    for folder in machine_folders(machines):
        if folder.name not in saved:
            shutil.rmtree(folder)


def _manifest(instance: Instance, settings: Env, now: datetime, saved: list[str], omitted: list[str]) -> Manifest:
    return Manifest(
        instance=instance.id,
        state=str(instance.state),
        short=str(instance.short),
        subnet=str(instance.subnet),
        host_name=settings.host_name,
        database=kind_of(settings.database_url),
        created_at=now.isoformat(timespec="seconds"),
        machines=saved,
        omitted=omitted,
    )
