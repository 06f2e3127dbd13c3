"""Conversion of a source to an entry of the cache, within a scratch directory of the caller."""

from __future__ import annotations

import json
import logging
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmbackend.errors import CapacityExceeded, ImageBroken, ImageError
from vmbackend.images.contents import examine_contents
from vmbackend.images.layout import sync_directory, write_synced
from vmbackend.images.limits import UsageLimit, check_free_space, image_too_large, tree_bytes
from vmbackend.images.process import CompletedTool, run_confined_tool
from vmbackend.images.registry import Source, download_image, fetch_own_config, layer_bytes
from vmbackend.images.types import ImageSettings, Job
from vmbackend.tool_confinement import TOOL_UID, ToolConfinement, give_to_tools
from vmbackend.trees import remove_tree

log = logging.getLogger(__name__)
SQUASHFS_OPTIONS = ["-comp", "lz4", "-noappend", "-no-progress", "-quiet", "-mem", "512M"]
# Over files of the ids of the user namespace: owners, modes, file capabilities, folders that their owner cannot write.
_UNPACK_CAPABILITIES = ("chown", "dac_override", "fowner", "fsetid", "setfcap")
_PACK_CAPABILITIES = ("dac_read_search",)
TYPICAL_RATIO = 3  # unpacked to packed; an estimate, for free space and progress only
_DEVICES = "/devices"
# Base disks have multiples of this size, most of them one, so that a guest's kernel that has seen one goes on with
# another. The rest is a hole; a larger step would keep a backup busy, whose rsync reads holes at 1 GiB in some seconds.
BASE_DISK_STEP = 1 << 30
REASON_HALF = 150  # characters
_NOT_WRITTEN = "The image's base disk could not be written."
OVERHEAD = 64 << 20  # manifests, partial blobs and rounding during a download_image


@dataclass(frozen=True, slots=True)
class Converted:
    """`squashfs`: synced. `changes`: what it lacks of the image, as sentences."""

    squashfs: Path
    config: dict[str, Any]
    changes: tuple[str, ...]


def convert_image(
    source: Source, manifest: dict[str, Any], scratch: Path, settings: ImageSettings, job: Job
) -> Converted:
    """Download, unpack and pack; return the base disk and the image's configuration.

    Raise ImageError, CapacityExceeded and DeadlineExceeded; partial results remain in `scratch`.
    """
    packed = layer_bytes(manifest)
    if packed > settings.max_unpacked_bytes:
        raise image_too_large(settings)
    check_free_space(scratch, packed * (1 + TYPICAL_RATIO), settings)
    config = fetch_own_config(source, settings, job)
    job.report_progress(5, "Downloading the image.")

    def downloaded(used: int) -> None:
        job.report_progress(5 + 45 * min(1.0, used / max(1, packed)), "Downloading the image.")

    download_image(source, scratch / "oci", settings, job, UsageLimit(scratch, packed + OVERHEAD, settings, downloaded))
    _unpack(scratch, packed, settings, job)
    contents = examine_contents(scratch, job)
    remove_tree(scratch / "oci")
    _pack(scratch, settings, job, contents.devices)
    return Converted(scratch / "rootfs.squashfs", config, contents.changes)


def _unpack(scratch: Path, packed: int, settings: ImageSettings, job: Job) -> None:
    rootfs = scratch / "rootfs"
    rootfs.mkdir()
    rootfs.chmod(0o755)  # the guest's root folder, if the image has no entry for it
    give_to_tools(rootfs)

    def unpacked(used: int) -> None:
        share = min(1.0, used / max(1, packed * TYPICAL_RATIO))
        job.report_progress(50 + 30 * share, "Unpacking the image.")

    job.report_progress(50, "Unpacking the image.")
    limit = UsageLimit(rootfs, settings.max_unpacked_bytes, settings, unpacked)
    confinement = ToolConfinement(
        readable=((scratch / "oci", "/oci"),), writable=((rootfs, "/rootfs"),), capabilities=_UNPACK_CAPABILITIES
    )
    argv = ["umoci", "--log=error", "raw", "unpack", "--image", "/oci:image", "/rootfs"]
    finished = run_confined_tool(
        argv, confinement, job=job, tick=limit.check_usage, max_file_bytes=settings.max_unpacked_bytes
    )
    if finished.returncode != 0:
        raise _failed(finished, "The image's layers could not be unpacked." + _refused_entry(finished.stderr))
    if tree_bytes(rootfs) > settings.max_unpacked_bytes:
        raise image_too_large(settings)


def _pack(scratch: Path, settings: ImageSettings, job: Job, devices: str = "") -> None:
    """Pack the tree. `devices`: definitions that mksquashfs adds to the tree."""
    job.report_progress(80, "Writing the base disk.")
    packed = scratch / "packed"
    packed.mkdir(mode=0o700)
    give_to_tools(packed)

    def tick() -> None:
        check_free_space(scratch, 0, settings)

    confinement = ToolConfinement(
        readable=((scratch / "rootfs", "/rootfs"),),
        writable=((packed, "/packed"),),
        files={_DEVICES: devices.encode()},
        capabilities=_PACK_CAPABILITIES,
    )
    argv = ["mksquashfs", "/rootfs", "/packed/rootfs.squashfs", *SQUASHFS_OPTIONS, "-pf", _DEVICES]
    finished = run_confined_tool(argv, confinement, job=job, tick=tick)
    if finished.returncode != 0:
        raise _failed(finished, _NOT_WRITTEN)
    _take_over(packed / "rootfs.squashfs")
    (packed / "rootfs.squashfs").rename(scratch / "rootfs.squashfs")


def _take_over(written: Path) -> None:
    """Make a file that a tool wrote the platform's, and sync it to disk. Raise ImageBroken if it is anything else.

    The folder belongs to the tool: it may have put a link, a FIFO, or a second name of another file there. No process
    of the tool runs any more, so that the file of the descriptor is the one of the name afterwards too.
    """
    try:
        descriptor = os.open(written, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        log.warning("%s cannot be opened: %s", written, error)
        raise ImageBroken(_NOT_WRITTEN) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_uid != TOOL_UID:
            log.warning("%s is not a file of the tool that should write it: %s", written, status)
            raise ImageBroken(_NOT_WRITTEN)
        os.fchown(descriptor, os.geteuid(), os.getegid())
        os.fchmod(descriptor, 0o644)
        os.ftruncate(descriptor, -(-status.st_size // BASE_DISK_STEP) * BASE_DISK_STEP)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failed(finished: CompletedTool, message: str) -> ImageError | CapacityExceeded:
    log.warning("%s %s", message, finished.stderr[-2000:].strip())
    if "no space left" in finished.stderr.lower():
        return CapacityExceeded("The host has no disk space left for this image.")
    return ImageBroken(message)


def _refused_entry(stderr: str) -> str:
    """Return the entry of a layer that the tool names with the reason, as a sentence; nothing if it names none."""
    _, found, reason = stderr.strip().rpartition("unpack entry: ")
    words = "".join(letter if letter.isprintable() else "?" for letter in reason.replace("/rootfs/", "/"))
    short = words if len(words) <= 2 * REASON_HALF else f"{words[:REASON_HALF]}...{words[-REASON_HALF:]}"
    return f" This entry failed: {short}" if found else ""


def write_entry(directory: Path, metadata: dict[str, Any]) -> None:
    """Write the metadata next to the squashfs, synced to disk."""
    write_synced(directory / "image.json", json.dumps(metadata, indent=1).encode())
    sync_directory(directory)
