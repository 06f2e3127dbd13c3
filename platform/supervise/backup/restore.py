"""`make restore`: an instance from a backup, in a folder that has none yet.

It stays the same instance, with its id and its addresses, also in another folder: saved memory and guests carry them.
So the original must be gone from this host. Until all is there the folder has the file `restoring`, with which no
command takes it for an instance; the same command again goes on.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path

from config.env import Env, variable
from supervise.backup.copying import copy_folder, copy_sparse_folder
from supervise.backup.databases import require_restorable, restore_database
from supervise.backup.machines import machine_folders, trace_of
from supervise.backup.manifest import Manifest, read_manifest
from supervise.files import read_env_file, write_private
from supervise.instance import Instance, InstanceError, short_path, state_folder
from supervise.removal import traces_of
from supervise.state_folder import CHOICES, RESTORING, make_folders


def restore(source: str, state: str, port: str, say: Callable[[str], None]) -> Instance:
    """Restore the backup `source` into the folder `state`. Raises InstanceError, OSError."""
    backup = _backup_folder(source)
    manifest = read_manifest(backup)
    folder = state_folder(state)
    begun = _require_place(folder, backup)
    _require_absence(manifest)
    make_folders(folder)
    write_private(folder / RESTORING, f"{backup}\n")
    copy_folder(backup / "state", folder)
    instance = _instance(manifest, folder, port)
    settings = _settings(instance, manifest, say)
    if not begun:
        _require_empty(settings, folder)
    _restore_files(backup, folder, settings)
    say(f"machines: {_restore_machines(backup, settings)} copied")
    restore_database(settings.database_url, backup, manifest.database)
    _write_choices(instance)
    os.sync()
    (folder / RESTORING).unlink()
    if manifest.omitted:
        say(f"{len(manifest.omitted)} machines ran during the backup: their workspaces are lost, without a disk.")
    return instance


def _backup_folder(source: str) -> Path:
    if not source:
        raise InstanceError("Name the backup: make restore FROM=/srv/backups/2026-11-24T03-00-00-abcdef STATE=...")
    return (Path.cwd() / source).resolve()


def _require_place(folder: Path, backup: Path) -> bool:
    """Returns whether this restore had begun there. Raises InstanceError where there is anything else."""
    marker = folder / RESTORING
    if marker.exists():
        if marker.read_text().strip() != str(backup):
            raise InstanceError(
                f"{folder} has part of another backup, {marker.read_text().strip()}; remove the folder."
            )
        return True
    if folder.exists() and any(entry.name != "lost+found" for entry in folder.iterdir()):
        raise InstanceError(f"{folder} is not empty: restore into a folder that has nothing.")
    return False


def _require_absence(manifest: Manifest) -> None:
    found = traces_of(manifest.instance)
    if found:
        raise InstanceError(
            f"Instance {manifest.instance} is on this host ({found}). Remove it first, with its folder: "
            f"make clean-instance CONFIRM=yes STATE={manifest.state}"
        )


def _instance(manifest: Manifest, folder: Path, port: str) -> Instance:
    given = read_env_file(folder / "settings.env").get(variable("port"))
    number = int(port or given or Env.model_fields["port"].default)
    short = Path(short_path(folder, manifest.instance))
    return Instance(manifest.instance, folder, short, number, IPv4Network(manifest.subnet))


def _settings(instance: Instance, manifest: Manifest, say: Callable[[str], None]) -> Env:
    """The host keeps the name under which the database knows it."""
    settings = instance.settings()
    if settings.host_name == manifest.host_name:
        return settings
    path = instance.state / "settings.env"
    before = path.read_text() if path.exists() else ""
    write_private(path, f"{before.rstrip()}\n{variable('host_name')}={manifest.host_name}\n".lstrip())
    say(f"{variable('host_name')}={manifest.host_name} was added to settings.env")
    return instance.settings()


def _require_empty(settings: Env, folder: Path) -> None:
    """Places outside of the state folder that its settings name, before anything is written there."""
    try:
        require_restorable(settings.database_url)
        if next(machine_folders(settings.machines_dir), None) is not None:
            raise InstanceError(f"The folder of machines {settings.machines_dir} is not empty.")
    except InstanceError:
        shutil.rmtree(folder)
        raise


def _restore_files(backup: Path, folder: Path, settings: Env) -> None:
    copy_folder(backup / "images", settings.images_dir / "images")
    copy_folder(backup / "kit", settings.kit_dir)
    definitions = folder / "libvirt" / "etc" / "qemu"
    copy_folder(backup / "definitions", definitions)
    manifest = read_manifest(backup)
    former = {manifest.state, manifest.short}
    for path in definitions.rglob("*.xml"):
        text = path.read_text()
        for old in former:
            text = text.replace(f"'{old}/", f"'{folder}/").replace(f">{old}/", f">{folder}/")
        path.write_text(text)


def _restore_machines(backup: Path, settings: Env) -> int:
    count = 0
    for machine in machine_folders(backup / "machines"):
        target = settings.machines_dir / machine.name
        if trace_of(target) != trace_of(machine):
            copy_sparse_folder(machine, target)
        count += 1
    return count


def _write_choices(instance: Instance) -> None:
    choices = {
        "id": instance.id,
        "state": str(instance.state),
        "short": str(instance.short),
        "subnet": str(instance.subnet),
    }
    write_private(instance.state / CHOICES, json.dumps(choices, indent=2) + "\n")
