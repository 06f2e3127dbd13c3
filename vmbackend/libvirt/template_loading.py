"""Loading of a boot template as one machine: its definition, its disk, its configuration, then its network.

Until the guest has answered that it has its own identity, no packet passes and no program of its user runs.
"""

from __future__ import annotations

import logging
from typing import Any

import libvirt

from vmbackend.errors import BackendError, TemplateUnusable
from vmbackend.guest.load_message import template_message
from vmbackend.libvirt import domain
from vmbackend.libvirt.layers import disk_bytes
from vmbackend.libvirt.memory_loading import DATA_DISK, load_memory, own_identity
from vmbackend.libvirt.message_exchange import exchange_message
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.starting import StartHooks
from vmbackend.libvirt.store import StoredMemory

log = logging.getLogger(__name__)

# A guest answers within 0.2 s of a quiet host; one that does not within this starts cold instead.
_ANSWER_SECONDS = 10.0


def load_template(connection: Any, entry: StoredMemory, target: Any, files: MachineDir, hooks: StartHooks) -> None:
    """Start a machine that is off from a template. Its CPUs run when this returns.

    Raise TemplateUnusable: whatever failed, the boot that follows shows whether that was the template's fault. There
    may be a process then, which the caller ends.
    """
    try:
        _load(connection, entry, target, files, hooks)
    except TemplateUnusable:
        raise
    except (BackendError, libvirt.libvirtError, SystemError, OSError, ValueError) as error:
        log.warning("machine %s: template %s: %s", files.id, entry.name, error)
        raise TemplateUnusable("The template could not be loaded.") from error


def _load(connection: Any, entry: StoredMemory, target: Any, files: MachineDir, hooks: StartHooks) -> None:
    own, size = own_identity(target), disk_bytes(files)
    if not load_memory(connection, entry, target, files, hooks):
        raise TemplateUnusable("The template's memory has changed since it was written.")
    with domain.translate_errors("resize the disk of"):
        target.blockResize(DATA_DISK, size, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)
    message = template_message(uuid=own["uuid"], mac=own["mac"], disk_bytes=size, config=files.config.read_bytes())
    exchange_message(target, files, message, _ANSWER_SECONDS)
    files.loading.unlink()
    hooks.port.connect()
