"""Loading of a boot template as one machine: its definition, its disk, its configuration, then its network.

Until the guest has answered that it has its own identity, no packet passes and no program of its user runs.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import libvirt

from vmbackend.errors import BackendError, GuestUnreachable, TemplateUnusable
from vmbackend.guest.load_message import LoadMessage
from vmbackend.libvirt import domain
from vmbackend.libvirt.identity import give_identity, identity_values
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.requests_port import discard_answers, open_requests_port, read_answers
from vmbackend.libvirt.save_file import read_save_file, replaced_description
from vmbackend.libvirt.starting import StartHooks
from vmbackend.libvirt.store import StoredMemory

log = logging.getLogger(__name__)

# A guest answers within 0.2 s of a quiet host; one that does not within this starts cold instead.
_ANSWER_SECONDS = 10.0
_CLOCK_ERROR_NS = 500_000_000
# Pipes hold 64 KiB by default, and the message lies in one before the processors go on.
_MESSAGE_PIPE_BYTES = 1 << 20
_ITEMS = [b"clock", b"entropy", b"mac", b"disk", b"configuration"]
_PIPE = "load"
_DATA_DISK = "vdb"
_NO_ANSWER = "The machine does not answer after it was loaded."


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
    with domain.translate_errors("describe"):
        definition = target.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE)
    identity = identity_values(definition)
    # From here until the answer its process is nobody's: what a death leaves is ended when the driver opens again.
    files.loading.touch(0o600)
    own = dict(identity)
    message = LoadMessage(
        uuid=own["uuid"],
        mac=own["mac"],
        disk_bytes=files.data_disk.stat().st_size,
        config=files.config.read_bytes(),
    )
    with ThreadPoolExecutor(2) as executor:
        attaching = executor.submit(hooks.port.attach)
        unchanged = executor.submit(entry.is_unchanged)
        _restore(connection, entry, identity, files)
        if not unchanged.result():
            raise TemplateUnusable("The template's memory has changed since it was written.")
        attaching.result()
    hooks.limit(target)
    with domain.translate_errors("resize the disk of"):
        target.blockResize(_DATA_DISK, message.disk_bytes, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)
    _assume_identity(target, files, message)
    files.loading.unlink()
    hooks.port.connect()


def _restore(connection: Any, entry: StoredMemory, identity: list[tuple[str, str]], files: MachineDir) -> None:
    pipe = files.path / _PIPE
    xml = give_identity(read_save_file(entry.memory).xml, identity)
    with replaced_description(entry.memory, xml, pipe):
        connection.restoreFlags(str(pipe), None, libvirt.VIR_DOMAIN_SAVE_PAUSED)


def _assume_identity(target: Any, files: MachineDir, message: LoadMessage) -> None:
    """Let the CPUs run with the message before them, and wait for the answer."""
    with open_requests_port(files, _NO_ANSWER) as (requests, answers):
        with suppress(OSError):
            fcntl.fcntl(requests, fcntl.F_SETPIPE_SZ, _MESSAGE_PIPE_BYTES)
        discard_answers(answers)
        sent = time.time_ns()
        encoded = message.encode(sent)
        if os.write(requests, encoded) != len(encoded):
            raise TemplateUnusable("The machine's configuration does not fit into its port.")
        domain.resume_domain(target)
        if _require_answer(answers, message.generation, sent):
            files.late_clock.touch(0o600)


def _require_answer(answers: int, generation: str, sent: int) -> bool:
    """Return whether the guest's clock may be late, as the answer took long. `sent`: when it was asked, in ns.

    Raise TemplateUnusable or GuestUnreachable unless it names each item, this generation and a time since then.
    """
    for words in read_answers(answers, time.monotonic() + _ANSWER_SECONDS):
        complete = words[:2] == [b"loaded", generation.encode()] and words[2:-1] == _ITEMS
        clock, now = int(words[-1][:20]) if complete and words[-1].isdigit() else 0, time.time_ns()
        if sent - _CLOCK_ERROR_NS <= clock <= now + _CLOCK_ERROR_NS:
            return now - clock > _CLOCK_ERROR_NS
        log.warning("loaded machine: %r", b" ".join(words)[:200])
        raise TemplateUnusable("The machine could not take its identity.")
    raise GuestUnreachable(_NO_ANSWER)
