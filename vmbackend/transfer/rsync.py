"""The two ends of rsync. Each host writes its own command line whole, so neither chooses an option of the other one.

The sending end reads files of all owners, as those of machines have owners of their own, but sees nothing besides /usr
and the one folder. The receiving end has no rights over anything but the one folder that it writes. Both have no
network, and speak by their standard input and output.
"""

from __future__ import annotations

from pathlib import Path

from vmbackend.tool_confinement import ToolConfinement

INSIDE = "/folder"
MEMORY_BYTES = 1 << 30
# An end that hears nothing for so long ends; before that, it is sent a sign of life.
SILENT_SECONDS = 120
# Blocks of a file that an earlier attempt left are compared, and no more is sent than what differs. A file that is
# complete is on the disk before it gets its time, by which the next attempt knows it. Zeros are sent compressed, as
# rsync does not know where a file has holes.
_BOTH = (
    *("--recursive", "--times", "--sparse", "--inplace", "--no-inc-recursive", f"--timeout={SILENT_SECONDS}"),
    *("--compress", "--compress-choice=zstd", "--compress-level=1"),
)
# `--delete`: an earlier call may have left files that the source has no more.
_RECEIVING = (
    "--fsync",
    "--delete",
    "--no-links",
    "--no-devices",
    "--no-specials",
    "--no-perms",
    "--no-owner",
    "--no-group",
)
# What `_BOTH` is to the sending end: as rsync 3.2 asks for it, whose features later versions have, too
# (tests/vmbackend/transfer/test_rsync.py compares them).
SENDER = (
    *("rsync", "--server", "--sender", "-trSe.LsfxCIvu", f"--timeout={SILENT_SECONDS}"),
    *("--compress-level=1", "--compress-choice=zstd", "--inplace", ".", f"{INSIDE}/"),
)
# rsync starts this as the program that leads to the other side, which is at descriptors 3 and 4.
_RELAY = "/relay"
# It ends with the other side, for which rsync waits. rsync's ends do not wait, which no program of Debian's copes with.
_RELAY_SCRIPT = b"""
import os, threading

def copy(source, target):
    os.set_blocking(source, True), os.set_blocking(target, True)
    while data := os.read(source, 1 << 18):
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(target, rest):]
    os.close(target)

threading.Thread(target=copy, args=(0, 4), daemon=True).start()
copy(3, 1)
"""
RECEIVER = ("rsync", *_BOTH, *_RECEIVING, f"--rsh=python3 -I -S {_RELAY}", f"source:{INSIDE}/", f"{INSIDE}/")
_RECEIVER_SCRIPT = 'exec 3<&0 4>&1 </dev/null >/dev/null && exec "$0" "$@"'


def sending_end(folder: Path) -> tuple[tuple[str, ...], ToolConfinement]:
    """Return the command that sends what is in a folder, and its confinement."""
    return SENDER, ToolConfinement(readable=((folder, INSIDE),), memory_bytes=MEMORY_BYTES, reads_all_owners=True)


def receiving_end(folder: Path) -> tuple[tuple[str, ...], ToolConfinement]:
    """Return the command that writes what is received into a folder, which is the confined tools', and its
    confinement.
    """
    confinement = ToolConfinement(
        writable=((folder, INSIDE),), files={_RELAY: _RELAY_SCRIPT}, memory_bytes=MEMORY_BYTES
    )
    return ("sh", "-c", _RECEIVER_SCRIPT, *RECEIVER), confinement
