"""Loading of a snapshot's memory as a machine: as another one, or as the same one at a later time.

The programs of its user are frozen and no packet passes until its guest has named each item of its renewal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import libvirt

from vmbackend.errors import CopyUnproven, GuestUnreachable, SnapshotIncompatible, SnapshotNotFound
from vmbackend.guest.load_message import renew_message
from vmbackend.libvirt import domain
from vmbackend.libvirt.identity import identity_values
from vmbackend.libvirt.layers import disk_bytes
from vmbackend.libvirt.memory_loading import DATA_DISK, load_memory, own_identity
from vmbackend.libvirt.message_exchange import exchange_message
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.save_file import SaveFile, read_save_file
from vmbackend.libvirt.starting import StartHooks
from vmbackend.libvirt.store import StoredMemory

log = logging.getLogger(__name__)

# A guest answers within 0.3 s of a quiet host. Nothing replaces a copy, so it has longer than a boot template.
_ANSWER_SECONDS = 30.0


def load_copy(
    connection: Any,
    entry: StoredMemory,
    target: Any,
    files: MachineDir,
    hooks: StartHooks,
    *,
    proven: Callable[[], None] = lambda: None,
) -> None:
    """Start a machine that is off, whose disk was taken from this entry, from its memory. Its CPUs run then.

    `proven`: called once it has this machine's identity and its network, and before it counts as started.

    Raise SnapshotNotFound (it was removed), SnapshotIncompatible (damaged, or of other devices), CopyUnproven,
    BackendUnavailable and the errors of `hooks`. There may be a process then, which the caller ends.
    """
    own = own_identity(target)
    try:
        kept = _is_of(read_save_file(entry.memory), own["uuid"])
        if not load_memory(connection, entry, target, files, hooks):
            raise SnapshotIncompatible("The snapshot's memory has changed since it was written.")
    except FileNotFoundError as error:
        raise SnapshotNotFound("The snapshot's memory is not on this host.") from error
    except ValueError as error:
        log.warning("machine %s: snapshot %s: %s", files.id, entry.name, error)
        raise SnapshotIncompatible("The snapshot's memory is of a machine with other devices.") from error
    with domain.translate_errors("resize the disk of"):
        # It may be larger than the snapshot's.
        target.blockResize(DATA_DISK, disk_bytes(files), libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)
    message = renew_message(uuid=own["uuid"], mac=own["mac"], config=files.config.read_bytes(), kept=kept)
    try:
        exchange_message(target, files, message, _ANSWER_SECONDS)
    except GuestUnreachable as error:
        log.warning("machine %s: snapshot %s: %s", files.id, entry.name, error)
        raise CopyUnproven("The machine did not prove its own identity after its memory was loaded.") from error
    hooks.port.connect()
    proven()
    files.loading.unlink(missing_ok=True)


def _is_of(saved: SaveFile, uuid: str) -> bool:
    return not saved.is_foreign and dict(identity_values(saved.xml))["uuid"] == uuid
