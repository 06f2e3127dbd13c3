"""`make restore`: an instance from a backup, in a folder that has none yet.

It stays the same instance, with its id and its addresses, also in another folder: saved memory and guests carry them.
So the original must be gone from this host. Until all is there the folder has the file `restoring`, with which no
command takes it for an instance; the same command again goes on.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv4Network
from pathlib import Path

from config.env import Env, variable
from supervise.backup.copying import copy_folder, copy_sparse_folder
from supervise.backup.databases import applied_migrations, require_restorable, restore_database
from supervise.backup.digests import damaged_files
from supervise.backup.machines import machine_folders, trace_of
from supervise.backup.manifest import Manifest, read_manifest
from supervise.backup.versions import require_known_migrations
from supervise.files import read_env_file, write_private
from supervise.instance import Instance, InstanceError, ensure_short_path, port_number, short_path, state_folder
from supervise.libvirtd import define_machines, require_libvirtd, uses_libvirtd
from supervise.postgres_server import running_server
from supervise.removal import traces_of
from supervise.state_folder import CHOICES, RESTORING, make_folders
from supervise.subnets import routed_networks

# Set to `yes`: files that differ from their hashes are restored as they are.
DAMAGED = "DAMAGED"
# Settings of the caller's environment for the restored instance are kept for its later commands.
_KEPT = ("database_url", "base_url", "machines_dir", "cache_dir", "libvirt_uri")


def restore_backup(source: str, state: str, port: str, say: Callable[[str], None]) -> Instance:
    """Restore the backup `source` into the folder `state`. Raise InstanceError, OSError.

    Refused before anything is written: a damaged backup, one of a newer version, a folder or a database that has
    something, the original instance on this host.
    """
    backup = _backup_folder(source)
    manifest = read_manifest(backup)
    folder = state_folder(state)
    if folder.resolve().is_relative_to(backup):
        raise InstanceError(f"{folder} is inside the backup, which the restore would change: choose another folder.")
    begun = _require_place(folder, backup)
    require_known_migrations(manifest.migrations)
    _require_absence(manifest)
    _require_intact(backup, manifest, say)
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    with _only_one(folder):
        instance = _restore_all(backup, manifest, folder, port, begun=begun, say=say)
    if manifest.omitted:
        say(f"{len(manifest.omitted)} machines ran during the backup: their workspaces are lost, without a disk.")
    return instance


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder. Raise InstanceError if another restore into it is under way."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise InstanceError(f"Another restore into {folder} is under way.") from error
    finally:
        os.close(descriptor)


def _restore_all(
    backup: Path, manifest: Manifest, folder: Path, port: str, *, begun: bool, say: Callable[[str], None]
) -> Instance:
    instance = _begin(folder, backup, manifest, port)
    settings = _settings(instance, manifest, port, say)
    if not begun:
        _require_empty(settings, folder)
        write_private(folder / RESTORING, f"{backup}\nempty\n")
    ensure_short_path(instance)
    _restore_files(backup, manifest, folder, settings)
    say(f"machines: {_restore_machines(backup, settings)} copied")
    with running_server(instance, settings):
        restore_database(instance, settings, backup)
        _require_database(settings, manifest)
    _write_choices(instance)
    os.sync()
    (folder / RESTORING).unlink()
    return instance


def _backup_folder(source: str) -> Path:
    if not source:
        raise InstanceError("Name the backup: make restore FROM=/srv/backups/2026-11-24T03-00-00-abcdef STATE=...")
    return (Path.cwd() / source).resolve()


def _require_place(folder: Path, backup: Path) -> bool:
    """Return whether this restore had begun there, in places found empty. Raise InstanceError if there is more."""
    marker = folder / RESTORING
    if marker.exists():
        whose, *found_empty = marker.read_text().splitlines()
        if whose != str(backup):
            raise InstanceError(f"{folder} has part of another backup, {whose}; remove the folder.")
        return bool(found_empty)
    if folder.exists() and any(not _is_nothing(entry) for entry in folder.iterdir()):
        raise InstanceError(f"{folder} is not empty: restore into a folder that has nothing.")
    return False


def _is_nothing(entry: Path) -> bool:
    """Return whether the entry is one of an empty file system, or a marker whose writing was cut off."""
    return entry.name == "lost+found" or entry.name.startswith(f".{RESTORING}.")


def _require_absence(manifest: Manifest) -> None:
    found = traces_of(manifest.instance)
    if found:
        raise InstanceError(
            f"Instance {manifest.instance} is on this host ({found}), and what is restored has the same id and "
            f"addresses. Remove it first, with its folder: make clean-instance CONFIRM=yes STATE={manifest.state}"
        )
    if any(IPv4Network(manifest.subnet).overlaps(network) for network in routed_networks()):
        raise InstanceError(
            f"The machines of the backup have addresses in {manifest.subnet}, which overlaps a route of this host."
        )


def _require_intact(backup: Path, manifest: Manifest, say: Callable[[str], None]) -> None:
    say(f"hashes: {manifest.files} files, {manifest.bytes >> 20} MiB are read")
    damaged = damaged_files(backup, manifest.digest)
    if not damaged:
        return
    few = ", ".join(damaged[:3]) + (", ..." if len(damaged) > 3 else "")
    if os.environ.get(DAMAGED) == "yes":
        say(f"{len(damaged)} files differ from their hashes and are restored as they are: {few}")
        return
    raise InstanceError(
        f"The backup is damaged: {len(damaged)} files differ from their hashes ({few}). Restore another one, or this "
        f"one as it is with {DAMAGED}=yes."
    )


def _begin(folder: Path, backup: Path, manifest: Manifest, port: str) -> Instance:
    """Return the folder with its mark and the files of the state, from which the settings are read."""
    if not (folder / RESTORING).exists():
        write_private(folder / RESTORING, f"{backup}\n")
    make_folders(folder)
    copy_folder(backup / "state", folder)
    given = port or read_env_file(folder / "settings.env").get(variable("port"))
    number = port_number(given or Env.model_fields["port"].default)
    short = Path(short_path(folder, manifest.instance))
    return Instance(manifest.instance, folder, short, number, IPv4Network(manifest.subnet))


def _settings(instance: Instance, manifest: Manifest, port: str, say: Callable[[str], None]) -> Env:
    """Return the backup's settings with those that the caller gives; the host keeps the name that the database knows.

    Paths inside the original's folder become paths inside this one.
    """
    path = instance.state / "settings.env"
    before = read_env_file(path)
    inside = re.compile(rf"(?<![\w.@+-]){re.escape(manifest.state)}(?=/)")
    wanted = {name: inside.sub(str(instance.state), value) for name, value in before.items()}
    given = {variable(name): os.environ.get(variable(name), "") for name in _KEPT}
    given |= {variable("port"): port, variable("host_name"): manifest.host_name}
    wanted |= {name: value for name, value in given.items() if value}
    added = {name: value for name, value in wanted.items() if before.get(name) != value}
    if added:
        text = path.read_text().rstrip() if path.exists() else ""
        lines = "".join(f"{name}={_quoted(value)}\n" for name, value in added.items())
        write_private(path, f"{text}\n{lines}".lstrip())
        say(f"settings.env: {', '.join(added)} set")
    return instance.settings()


def _quoted(value: str) -> str:
    """Return the value as `read_env_file` reads it."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _require_empty(settings: Env, folder: Path) -> None:
    """Require that places outside the state folder, which its settings name, are empty before anything is written
    there.
    """
    try:
        require_restorable(settings)
        if next(machine_folders(settings.machines_dir), None) is not None:
            raise InstanceError(f"The folder of machines {settings.machines_dir} is not empty.")
        if uses_libvirtd(settings):
            require_libvirtd(settings.libvirt_uri)
    except InstanceError:
        _remove_begun(folder)
        raise


def _remove_begun(folder: Path) -> None:
    """Remove all that `_begin` has made, its mark last. A mount point stays."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name == RESTORING):
        if entry.is_dir() and entry.name != "lost+found":
            shutil.rmtree(entry)
        elif not entry.is_dir():
            entry.unlink()
    with suppress(OSError):
        folder.rmdir()


def _restore_files(backup: Path, manifest: Manifest, folder: Path, settings: Env) -> None:
    # A cache may be shared with other instances, whose files stay as they are.
    copy_folder(backup / "images", settings.images_dir / "images", keep=True)
    copy_folder(backup / "local-images", settings.images_dir / "oci", keep=True)
    copy_folder(backup / "kit", settings.kit_dir, keep=True)
    copy_folder(backup / "snapshots", settings.machines_dir / ".store")
    _restore_definitions(backup, manifest, folder, settings)


def _restore_definitions(backup: Path, manifest: Manifest, folder: Path, settings: Env) -> None:
    """Restore definitions as files where an embedded libvirt finds them; a libvirtd is given them."""
    definitions = folder / "libvirt" / "etc" / "qemu"
    copy_folder(backup / "definitions", definitions)
    # Without one a machine is lost, which its workspace says; with one it would start with an empty disk.
    for name in manifest.omitted:
        for path in definitions.rglob(f"*{name}.xml"):
            path.unlink()
    for path in definitions.rglob("*.xml"):
        text = path.read_text()
        for old in (manifest.state, manifest.short):
            text = text.replace(f"'{old}/", f"'{folder}/").replace(f">{old}/", f">{folder}/")
        path.write_text(text)
    if uses_libvirtd(settings):
        define_machines(settings.libvirt_uri, definitions)
        shutil.rmtree(definitions)


def _restore_machines(backup: Path, settings: Env) -> int:
    count = 0
    for machine in machine_folders(backup / "machines"):
        target = settings.machines_dir / machine.name
        if trace_of(target) != trace_of(machine):
            copy_sparse_folder(machine, target)
        count += 1
    return count


def _require_database(settings: Env, manifest: Manifest) -> None:
    """Raise InstanceError unless the database has the backup's migrations: after an interrupted restore into a server
    of the operator's, its tables could be another's.
    """
    if applied_migrations(settings.database_url) != manifest.migrations:
        raise InstanceError("The database has other content than the backup. Name an empty one, and restore again.")


def _write_choices(instance: Instance) -> None:
    choices = {
        "id": instance.id,
        "state": str(instance.state),
        "short": str(instance.short),
        "subnet": str(instance.subnet),
    }
    write_private(instance.state / CHOICES, json.dumps(choices, indent=2) + "\n")
