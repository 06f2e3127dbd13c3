"""Conversion of a source to an entry of the cache, within a scratch directory of the caller."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

from vmbackend.errors import CapacityExceeded, ImageBroken, ImageError
from vmbackend.images.layout import sync_directory, write_synced
from vmbackend.images.limits import UsageLimit, check_free_space, image_too_large, tree_bytes
from vmbackend.images.process import CompletedTool, run_confined_tool
from vmbackend.images.registry import Source, download_image, fetch_own_config, layer_bytes
from vmbackend.images.types import ImageConfig, ImageSettings, Job
from vmbackend.tool_confinement import TOOL_UID, ToolConfinement, give_to_tools
from vmbackend.trees import remove_tree

log = logging.getLogger(__name__)
SQUASHFS_OPTIONS = ["-comp", "lz4", "-noappend", "-no-progress", "-quiet", "-mem", "512M"]
# Over files of the ids of the user namespace: owners, modes, file capabilities, folders that their owner cannot write.
_UNPACK_CAPABILITIES = ("chown", "dac_override", "fowner", "fsetid", "setfcap")
_PACK_CAPABILITIES = ("dac_read_search",)
TYPICAL_RATIO = 3  # unpacked to packed; an estimate, for free space and progress only
_NOT_WRITTEN = "The image's base disk could not be written."
_DAMAGED_CONFIG = "The image's configuration is damaged."
OVERHEAD = 64 << 20  # manifests, partial blobs and rounding during a download_image


def convert_image(
    source: Source, manifest: dict[str, Any], scratch: Path, settings: ImageSettings, job: Job
) -> tuple[Path, dict[str, Any]]:
    """Download, unpack and pack; returns the squashfs (synced) and the image's configuration.

    Raises ImageError, CapacityExceeded and DeadlineExceeded; partial results remain in `scratch`.
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
    _pack(scratch, settings, job)
    return scratch / "rootfs.squashfs", config


def _unpack(scratch: Path, packed: int, settings: ImageSettings, job: Job) -> None:
    rootfs = scratch / "rootfs"
    rootfs.mkdir()
    rootfs.chmod(0o755)  # the guest's root folder, where the image has no entry for it
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
        raise _failed(finished, "The image's layers could not be unpacked.")
    if tree_bytes(rootfs) > settings.max_unpacked_bytes:
        raise image_too_large(settings)
    remove_tree(scratch / "oci")


def _pack(scratch: Path, settings: ImageSettings, job: Job) -> None:
    job.report_progress(80, "Writing the base disk.")
    packed = scratch / "packed"
    packed.mkdir(mode=0o700)
    give_to_tools(packed)

    def tick() -> None:
        check_free_space(scratch, 0, settings)

    confinement = ToolConfinement(
        readable=((scratch / "rootfs", "/rootfs"),), writable=((packed, "/packed"),), capabilities=_PACK_CAPABILITIES
    )
    argv = ["mksquashfs", "/rootfs", "/packed/rootfs.squashfs", *SQUASHFS_OPTIONS]
    finished = run_confined_tool(argv, confinement, job=job, tick=tick)
    if finished.returncode != 0:
        raise _failed(finished, _NOT_WRITTEN)
    _take_over(packed / "rootfs.squashfs")
    (packed / "rootfs.squashfs").rename(scratch / "rootfs.squashfs")


def _take_over(written: Path) -> None:
    """Make a file that a tool wrote the platform's, and sync it to disk. Raises ImageBroken if it is anything else.

    The folder belongs to the tool: it may have put a link, a FIFO, or a second name of another file there. No process
    of the tool runs any more, so that the file of the descriptor is the one of the name afterwards too.
    """
    try:
        descriptor = os.open(written, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
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
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failed(finished: CompletedTool, message: str) -> ImageError | CapacityExceeded:
    log.warning("%s %s", message, finished.stderr[-2000:].strip())
    if "no space left" in finished.stderr.lower():
        return CapacityExceeded("The host has no disk space left for this image.")
    return ImageBroken(message)


def write_entry(directory: Path, metadata: dict[str, Any]) -> None:
    """Write the metadata next to the squashfs, synced to disk."""
    write_synced(directory / "image.json", json.dumps(metadata, indent=1).encode())
    sync_directory(directory)


def parse_config(document: dict[str, Any]) -> ImageConfig:
    """The used part of an image's untrusted configuration. Raises ImageBroken."""
    inner = _object(document.get("config"))
    return ImageConfig(
        entrypoint=_strings(inner.get("Entrypoint")),
        cmd=_strings(inner.get("Cmd")),
        env=dict(_pair(item) for item in _strings(inner.get("Env"))),
        working_dir=_string(inner.get("WorkingDir") or ""),
        user=_string(inner.get("User") or ""),
        exposed_ports=_strings(sorted(_object(inner.get("ExposedPorts")))),
        labels={_string(key): _string(value) for key, value in _object(inner.get("Labels")).items()},
    )


def _object(value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ImageBroken(_DAMAGED_CONFIG)
    return value


def _pair(item: str) -> tuple[str, str]:
    name, _, value = item.partition("=")
    return name, value


def _strings(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ImageBroken(_DAMAGED_CONFIG)
    return tuple(_string(item) for item in value)


def _string(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ImageBroken(_DAMAGED_CONFIG)
    try:
        value.encode()  # JSON can spell halves of surrogate pairs, which no file or database takes
    except UnicodeEncodeError as error:
        raise ImageBroken(_DAMAGED_CONFIG) from error
    return value
