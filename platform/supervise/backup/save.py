"""`make backup`: a folder with one state of an instance, made while it runs.

No lock keeps users out; the order does it. Files that never change once they are there (releases of pages, files of the
CDN, images, snapshots) are copied before the database and once more after it, so that all that the database names is
there. The disks of machines come before it: what has no row any more is removed at the restored instance's start, and
what has a row has its disk. If a machine was started or stopped in between, machines and database are copied again.

An interrupted backup goes on where it was: only a complete one has a manifest and the name `<time>-<instance>`.
"""

from __future__ import annotations

import errno
import glob
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from config.env import Env
from supervise.backup.copying import copy_folder
from supervise.backup.databases import applied_migrations, save_database
from supervise.backup.digests import NAME as LIST
from supervise.backup.digests import write_digests
from supervise.backup.machines import machine_folders, save_machine, traces_at_rest
from supervise.backup.manifest import NAME, Manifest
from supervise.control import exclusive_control
from supervise.instance import Instance, InstanceError
from supervise.libvirtd import save_definitions, uses_libvirtd
from supervise.postgres_server import require_database, running_server
from vmbackend.machines_folder import UNASSIGNED

# Parts of the state folder that each start makes, or that are copied on their own.
NOT_STATE = (
    *("/run", "/log", "/static", "/reserve", "/libvirt", "/cache", "/machines", "/instance.json"),
    *("/postgres", "/.*", "/restoring"),
    # What is restored listens to no other machine until `make host-token`: it may be elsewhere, and hosts join again.
    *("/network/address", "/redis-users.acl"),
)
# Parts of the kit's folder from which the kit was built.
NOT_KIT = ("/debs", "/.*")
# On a host where machines come and go all the time the last pass is taken as it is.
_PASSES = 3
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(slots=True)
class _Copied:
    """Machines in the backup, those left out, and those whose copy is older than the database."""

    saved: list[str] = field(default_factory=list)
    omitted: list[str] = field(default_factory=list)
    earlier: list[str] = field(default_factory=list)


def back_up(instance: Instance, target: str, say: Callable[[str], None]) -> Path:
    """Write a backup below the folder `target`; return its folder. Raise InstanceError, OSError.

    Dies half way, or finds its disk full: `.<instance>.partial` stays, and the next call goes on with it.
    """
    settings = instance.settings()
    place = _place(instance, settings, target)
    require_database(instance, settings)
    with exclusive_control(instance, "backup"), running_server(instance, settings):
        partial, former = place / f".{instance.id}.partial", _latest(place, instance.id)
        try:
            partial.mkdir(mode=0o700, exist_ok=True)
            # A call that died right before its end left it: no manifest may lie beside what is copied now.
            (partial / NAME).unlink(missing_ok=True)
            return _complete(instance, settings, partial, former, say)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise InstanceError(
                f"The disk of {place} is full. Make room and repeat the command: it goes on."
            ) from error


def _complete(
    instance: Instance, settings: Env, partial: Path, former: Path | None, say: Callable[[str], None]
) -> Path:
    _save_files(instance, settings, partial, former, delete=True)
    say("files: copied")
    copied = _save_machines_and_database(instance, settings, partial, former)
    say(f"machines: {len(copied.saved)} copied, {len(copied.omitted)} run and are left out")
    if copied.earlier:
        say(f"machines: {len(copied.earlier)} were started or stopped in between, and are copied as they were before")
    _save_files(instance, settings, partial, former, delete=False)
    _manifest(instance, settings, copied, partial, former).write(partial)
    # Before the name that says so all of it is on the disk.
    os.sync()
    done = partial.rename(_free_name(partial.parent, instance.id))
    os.sync()
    return done


def _free_name(place: Path, instance_id: str) -> Path:
    """Return a free name made of the time; a clock that was set back, or a second backup in a second, finds a taken
    name.
    """
    moment = datetime.now(UTC)
    while (path := place / f"{moment:%Y-%m-%dT%H-%M-%S}-{instance_id}").exists():
        moment += timedelta(seconds=1)
    return path


def _place(instance: Instance, settings: Env, target: str) -> Path:
    if not target:
        raise InstanceError("Name the folder of backups: make backup TO=/srv/backups")
    place = Path.cwd() / target
    resolved = place.resolve()
    if resolved.is_relative_to(instance.state.resolve()):
        raise InstanceError("The folder of backups cannot be inside the state folder.")
    for source in (settings.machines_dir, settings.images_dir, settings.kit_dir):
        if resolved.is_relative_to(source.resolve()):
            raise InstanceError(f"The folder of backups cannot be inside {source}, which is copied.")
    for folder in (resolved, *resolved.parents):
        if (folder / NAME).exists() and (folder / LIST).exists():
            raise InstanceError(f"{folder} is a backup itself; name the folder beside it: TO={folder.parent}")
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InstanceError(f"The folder of backups {place} cannot be made: {error.strerror}.") from error
    return place


def _latest(place: Path, instance_id: str) -> Path | None:
    found = [path for path in place.glob(f"????-*-{instance_id}") if (path / NAME).exists()]
    return max(found, default=None)


def _save_files(instance: Instance, settings: Env, target: Path, former: Path | None, *, delete: bool) -> None:
    folders = {
        "state": (instance.state, (*NOT_STATE, *_places_elsewhere(instance, settings))),
        "images": (settings.images_dir / "images", ("/.*",)),
        "local-images": (settings.images_dir / "oci", ("/.*",)),
        "kit": (settings.kit_dir, NOT_KIT),
        # Snapshots never change, either; boot templates are made anew. Layers are not shared with machines any more.
        "snapshots": (settings.machines_dir / ".store", ("/.*", "/boot_*")),
    }
    for name, (source, exclude) in folders.items():
        link = former / name if former else None
        copy_folder(source, target / name, exclude=exclude, former=link, delete=delete)
    _save_definitions(instance, settings, target, former, delete=delete)


def _save_definitions(instance: Instance, settings: Env, target: Path, former: Path | None, *, delete: bool) -> None:
    if uses_libvirtd(settings):
        save_definitions(settings.libvirt_uri, instance.id, target / "definitions", delete=delete)
        return
    source, link = instance.state / "libvirt" / "etc" / "qemu", former / "definitions" if former else None
    copy_folder(source, target / "definitions", former=link, delete=delete)


def _places_elsewhere(instance: Instance, settings: Env) -> list[str]:
    """Return rsync patterns of the folders that settings put into the state folder; they are copied on their own."""
    places = [settings.machines_dir, settings.cache_dir, settings.images_dir, settings.kit_dir]
    inside = [path.relative_to(instance.state) for path in places if path.is_relative_to(instance.state)]
    return [f"/{glob.escape(str(path))}" for path in inside]


def _save_machines_and_database(instance: Instance, settings: Env, target: Path, former: Path | None) -> _Copied:
    for _ in range(_PASSES):
        before = traces_at_rest(instance.id, settings.machines_dir)
        copied = _save_machines(instance, settings, target, former)
        save_database(instance, settings, target)
        after = traces_at_rest(instance.id, settings.machines_dir)
        copied.earlier = [name for name in copied.saved if name in before and before[name] != after.get(name)]
        if before == after:
            break
    return copied


def _save_machines(instance: Instance, settings: Env, target: Path, former: Path | None) -> _Copied:
    copied = _Copied()
    for folder in machine_folders(settings.machines_dir):
        if (folder / UNASSIGNED).exists():  # a machine of the warm pool: there is nothing of anybody in it
            continue
        known = former / "machines" / folder.name if former else None
        done = save_machine(instance.id, folder, target / "machines" / folder.name, known)
        (copied.saved if done else copied.omitted).append(folder.name)
    _remove_others(target / "machines", copied.saved)
    return copied


def _remove_others(machines: Path, saved: list[str]) -> None:
    """Remove what an earlier pass copied, or began to copy, of machines that run or are gone by now."""
    for folder in [*machine_folders(machines), *machines.glob(".ws_*.partial")]:
        if folder.name not in saved:
            shutil.rmtree(folder)


def _manifest(instance: Instance, settings: Env, copied: _Copied, folder: Path, former: Path | None) -> Manifest:
    digests = write_digests(folder, former)
    return Manifest(
        instance=instance.id,
        state=str(instance.state),
        short=str(instance.short),
        subnet=str(instance.subnet),
        host_name=settings.host_name,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        digest=digests.digest,
        files=len(digests.files),
        bytes=digests.bytes,
        migrations=applied_migrations(settings.database_url),
        machines=copied.saved,
        omitted=copied.omitted,
        earlier=copied.earlier,
    )
