"""The log files that libvirt makes for QEMU: one for each machine, appended to at every start and by QEMU itself.

libvirt never removes them, and with an embedded libvirt nothing limits them, although guests can make QEMU complain.
They are removed with their machine, and emptied when they are too large; QEMU appends, so that is safe while it runs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from vmbackend.libvirt.domain import name_for
from vmbackend.libvirt.settings import LibvirtSettings

log = logging.getLogger(__name__)

MAX_BYTES = 1 << 20
_DAEMONS_FOLDER = Path("/var/log/libvirt/qemu")


class QemuLogs:
    """The log files of one instance's machines."""

    def __init__(self, settings: LibvirtSettings) -> None:
        self._instance = settings.instance
        root = settings.embed_root
        self._folder = _DAEMONS_FOLDER if root is None else root / "log" / "qemu"

    def remove(self, machine_id: str) -> None:
        """Remove a machine's log and the older ones of virtlogd. Idempotent; one that cannot be removed is left."""
        name = name_for(self._instance, machine_id)
        for path in (self._folder / f"{name}.log", *self._folder.glob(f"{name}.log.[0-9]*")):
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def remove_others(self, machine_ids: Collection[str]) -> None:
        """Remove the logs of all other machines of this instance: those of a version that left them."""
        for machine_id, path in self._files():
            if machine_id not in machine_ids:
                with suppress(OSError):
                    path.unlink(missing_ok=True)

    def limit_sizes(self) -> None:
        """Empty each log that exceeds MAX_BYTES."""
        for _, path in self._files():
            with suppress(OSError):
                if path.stat().st_size > MAX_BYTES:
                    os.truncate(path, 0)
                    log.warning("%s exceeded %d bytes and was emptied", path, MAX_BYTES)

    def _files(self) -> Iterator[tuple[str, Path]]:
        prefix = name_for(self._instance, "")
        for path in self._folder.glob(f"{prefix}*.log*"):
            yield path.name.removeprefix(prefix).partition(".log")[0], path
