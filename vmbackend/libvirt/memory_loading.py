"""Loading of memory from the store under the definition of a machine that is off.

Until its guest has answered that it has this machine's identity the process is nobody's: the mark `loading` says so,
no packet passes, and what a death leaves is ended when the driver opens again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import libvirt

from vmbackend.libvirt import domain
from vmbackend.libvirt.identity import give_identity, identity_values, with_machine
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.save_file import read_save_file, replaced_description
from vmbackend.libvirt.starting import StartHooks
from vmbackend.libvirt.store import StoredMemory

DATA_DISK = "vdb"
_PIPE = "load"


def own_identity(target: Any) -> dict[str, str]:
    """Return the values of a machine's definition by their kind. Raise BackendUnavailable."""
    return dict(identity_values(_definition(target)))


def load_memory(connection: Any, entry: StoredMemory, target: Any, files: MachineDir, hooks: StartHooks) -> bool:
    """Load an entry's memory as this machine, with its CPUs stopped; return whether it is what was written.

    The machine is limited and attached to its network then, not connected. Raises OSError, ValueError (another format,
    or other devices) and the errors of `hooks`; BackendUnavailable. There may be a process then, marked `loading`.
    """
    own, saved = _definition(target), read_save_file(entry.memory)
    if saved.is_foreign:
        xml = with_machine(own, entry.needs["machine"])
    else:
        xml = give_identity(saved.xml, identity_values(own))
    files.loading.touch(0o600)
    with ThreadPoolExecutor(2) as executor:
        attaching = executor.submit(hooks.port.attach)
        unchanged = executor.submit(entry.is_unchanged)
        pipe = files.path / _PIPE
        with replaced_description(entry.memory, xml, pipe), domain.translate_errors("load"):
            connection.restoreFlags(str(pipe), None, libvirt.VIR_DOMAIN_SAVE_PAUSED)
        attaching.result()
        if not unchanged.result():
            return False
    hooks.limit(target)
    return True


def _definition(target: Any) -> str:
    with domain.translate_errors("describe"):
        return str(target.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE))
