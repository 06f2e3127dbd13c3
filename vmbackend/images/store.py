"""The cache of base disks, keyed by digest.

    ROOT/images/<hex>/rootfs.squashfs, image.json   complete; created and removed by one rename
    ROOT/scratch/<hex>-*/                           of the owner of lock <hex>; stale if it is not locked
    ROOT/locks/<hex>                                exclusive: being pulled or evicted; shared: being read

A crash at any point leaves only scratch. It is removed by the next `ensure` of that digest and by `sweep`.
"""

from __future__ import annotations

import builtins
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from vmbackend.errors import BackendError, ImageNotFound
from vmbackend.images.convert import convert_image, write_entry
from vmbackend.images.image_config import config_changes, parse_config
from vmbackend.images.indexes import PlatformSearch
from vmbackend.images.layout import find_local, sync_directory, write_view
from vmbackend.images.reference import Reference, parse_reference
from vmbackend.images.registry import (
    Source,
    checked_digest,
    fetch_config,
    fetch_manifest,
    fetch_own_config,
    fetch_pinned_manifest,
    registry_source,
)
from vmbackend.images.types import Image, ImageConfig, ImageSettings, Job, never_cancelled
from vmbackend.locks import try_lock, wait_lock
from vmbackend.orphaned_tools import kill_orphaned_tools
from vmbackend.trees import remove_tree

__all__ = ["Image", "ImageConfig", "ImageSettings", "ImageStore"]
log = logging.getLogger(__name__)
_CONFIG_FIELDS = frozenset(field.name for field in fields(ImageConfig))


class ImageStore:
    """One host's images. Threads and processes may share one root."""

    def __init__(self, root: Path, settings: ImageSettings) -> None:
        self.settings = settings
        self._images, self._scratch, self._locks = (root / name for name in ("images", "scratch", "locks"))
        self._completed: set[str] = set()  # or tried; for each process
        for directory in (self._images, self._scratch, self._locks):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def ensure(
        self,
        reference: str,
        *,
        progress: Callable[[int, str], None],
        deadline: float,
        cancelled: Callable[[], bool] = never_cancelled,
    ) -> Image:
        """Return the image, pulling it if necessary; a tag is resolved at the registry each time.

        `deadline` on the clock of time.monotonic(). One pull per digest at a time: other callers wait for it.
        Raise ImageError and its subclasses, ImageCancelled, CapacityExceeded, DeadlineExceeded, BackendUnavailable.
        On failure nothing remains; after a death of the process scratch does, see the module.
        """
        job = Job(progress, deadline, cancelled)
        named = parse_reference(reference)
        job.check_cancelled()
        image = self.get(named.digest) if named.digest else None
        if image is None:
            job.report_progress(0, "Resolving the image.")
            digest = self._resolve(named, job)
            image = self.get(digest) or self._pull(named, digest, job)
        image = self._complete(named, image, job)
        job.report_progress(100, "The image is ready.")
        return image

    def get(self, digest: str) -> Image | None:
        """Return the image if it is ready; updates its last use. Raise ImageError for an invalid `digest`."""
        hexed = checked_digest(digest).partition(":")[2]
        with try_lock(self._locks / hexed, shared=True) as free:
            # Not free: it is being pulled, evicted or swept; the caller's next step waits for that.
            return self._load(hexed, touch=True) if free else None

    def list(self) -> Sequence[Image]:
        """Return every image that is ready, the least recently used first. Does not update their last use."""
        found = ((self._last_used(path.name), path.name) for path in self._images.iterdir())
        images = (self._load(name, touch=False) for _, name in sorted(found))
        return [image for image in images if image is not None]

    def names(self) -> builtins.list[str]:
        """Return the references under which the images that are ready were first asked for, sorted."""
        found = set()
        for path in self._images.iterdir():
            with suppress(OSError, ValueError):  # one that is being evicted
                found.add(self._metadata(path.name).get("name", ""))
        return sorted(found - {""})

    def evict(self, *, in_use: Collection[str]) -> builtins.list[str]:
        """Remove least recently used images until the others fit into `cache_bytes`; return their digests.

        Never removes those `in_use`, those used within `evict_grace` seconds, and those being pulled.
        """
        images = self.list()
        excess = sum(image.size_bytes for image in images) - self.settings.cache_bytes
        removed: builtins.list[str] = []
        for image in images:
            if excess <= 0:
                break
            if image.digest not in in_use and self._evict_one(image.digest.partition(":")[2]):
                removed.append(image.digest)
                excess -= image.size_bytes
        return removed

    def sweep(self) -> builtins.list[str]:
        """Remove scratch of dead pulls, and unused lock files; return the names. Called at start-up.

        Tools that outlived their pull are killed first.
        """
        kill_orphaned_tools()
        removed: builtins.list[str] = []
        for path in sorted(self._scratch.iterdir()):
            with try_lock(self._locks / path.name[:64]) as free:
                if free and remove_tree(path):
                    removed.append(path.name)
        for lock in self._locks.iterdir():
            with try_lock(lock) as free:
                if free and not (self._images / lock.name).exists():
                    lock.unlink(missing_ok=True)
        return removed

    def _resolve(self, reference: Reference, job: Job) -> str:
        if reference.is_local:
            return self._resolve_local(reference)
        source = registry_source(reference, self.settings)
        return fetch_manifest(source, self.settings, job)[0]

    def _resolve_local(self, reference: Reference) -> str:
        if self.settings.local_store is None:
            raise ImageNotFound("This host has no local image store, so there are no localhost/ images.")
        return checked_digest(find_local(self.settings.local_store, reference))

    def _pull(self, reference: Reference, digest: str, job: Job) -> Image:
        hexed = digest.partition(":")[2]

        def waiting() -> None:
            job.check_cancelled()
            job.report_progress(0, "The image is already being fetched for another machine.")

        with wait_lock(self._locks / hexed, waiting):
            if image := self._load(hexed, touch=True):
                return image
            self._clear(hexed)
            scratch = Path(tempfile.mkdtemp(prefix=f"{hexed}-", dir=self._scratch))
            try:
                self._fill(reference, digest, scratch, job)
                self._publish(scratch / "out", hexed)
            finally:
                remove_tree(scratch)
            image = self._load(hexed, touch=True)
        if image is None:
            raise ImageNotFound("The image was removed from the host while it was being prepared.")
        return image

    def _fill(self, reference: Reference, digest: str, scratch: Path, job: Job) -> None:
        source, manifest = self._pinned(reference, digest, scratch, job)
        converted = convert_image(source, manifest, scratch, self.settings, job)
        out = scratch / "out"
        out.mkdir(mode=0o700)
        converted.squashfs.rename(out / converted.squashfs.name)
        config = parse_config(converted.config)
        changes = (*converted.changes, *config_changes(converted.config))
        named = {"digest": digest, "arch": self.settings.arch, "name": str(reference)}
        write_entry(out, {**named, "config": asdict(config), "changes": changes})

    def _pinned(self, reference: Reference, digest: str, scratch: Path, job: Job) -> tuple[Source, dict[str, Any]]:
        """Return the source of this platform's image in `digest`, and its manifest."""

        def manifest_of(wanted: str) -> dict[str, Any]:
            return fetch_pinned_manifest(self._source(reference, wanted, scratch), wanted, self.settings, job)

        def config_of(wanted: str) -> dict[str, Any]:
            return fetch_config(self._source(reference, wanted, scratch), self.settings, job)

        search = PlatformSearch(reference, self.settings.arch, manifest_of, config_of)
        found, manifest = search.find(digest)
        return self._source(reference, found, scratch), manifest

    def _complete(self, reference: Reference, image: Image, job: Job) -> Image:
        """Add to an entry of an earlier version what it lacks of the configuration; the same image if that fails.

        Once for each process, so that a registry without an answer does not delay every machine.
        """
        if image.digest in self._completed:
            return image
        self._completed.add(image.digest)
        try:
            self._add_missing(reference, image, job)
        except (BackendError, OSError, ValueError) as error:
            log.warning("%s keeps the configuration that an earlier version stored: %s", image.digest, error)
        return self.get(image.digest) or image

    def _add_missing(self, reference: Reference, image: Image, job: Job) -> None:
        hexed = image.digest.partition(":")[2]
        if self._metadata(hexed)["config"].keys() >= _CONFIG_FIELDS:
            return
        until = min(job.deadline, time.monotonic() + self.settings.registry_timeout)
        with try_lock(self._locks / hexed, shared=True) as free:
            if not free:
                return
            scratch = Path(tempfile.mkdtemp(prefix=f"{hexed}-", dir=self._scratch))
            try:
                self._rewrite(reference, image, scratch, Job(lambda *_: None, until, job.cancelled))
            finally:
                remove_tree(scratch)

    def _rewrite(self, reference: Reference, image: Image, scratch: Path, job: Job) -> None:
        """Replace the entry's metadata, and nothing else."""
        source, _ = self._pinned(reference, image.digest, scratch, job)
        config = fetch_own_config(source, self.settings, job)
        hexed = image.digest.partition(":")[2]
        changes = [*dict.fromkeys((*image.changes, *config_changes(config)))]
        metadata = {**self._metadata(hexed), "config": asdict(parse_config(config)), "changes": changes}
        write_entry(scratch, metadata)
        (scratch / "image.json").rename(self._images / hexed / "image.json")
        sync_directory(self._images / hexed)

    def _source(self, reference: Reference, digest: str, scratch: Path) -> Source:
        if not reference.is_local or self.settings.local_store is None:
            return registry_source(reference, self.settings, digest)
        view = scratch / "source"
        mounts = write_view(view, self.settings.local_store, digest, inside="/source")
        return Source("oci:/source:image", (), reference, mounts=mounts)

    def _clear(self, hexed: str) -> None:
        """Remove stale scratch of this digest, whose lock is held, and an entry of another architecture."""
        if stale := list(self._scratch.glob(f"{hexed}-*")):
            kill_orphaned_tools()
        for path in (*stale, self._images / hexed):
            remove_tree(path)

    def _publish(self, out: Path, hexed: str) -> None:
        out.rename(self._images / hexed)
        sync_directory(self._images)

    def _load(self, hexed: str, *, touch: bool) -> Image | None:
        directory = self._images / hexed
        try:
            metadata = self._metadata(hexed)
            size = (directory / "rootfs.squashfs").stat().st_blocks * 512  # its end is a hole
            if touch:
                os.utime(directory / "image.json")
        except (OSError, ValueError):
            return None
        if metadata["arch"] != self.settings.arch:
            return None
        # A later version, which shares the cache, may have stored more.
        config = {name: value for name, value in metadata["config"].items() if name in _CONFIG_FIELDS}
        for name in ("entrypoint", "cmd", "exposed_ports", "volumes"):
            config[name] = tuple(config.get(name, ()))  # an entry of an earlier version lacks some
        changes = tuple(metadata.get("changes", ()))
        return Image(metadata["digest"], directory / "rootfs.squashfs", size, ImageConfig(**config), changes)

    def _metadata(self, hexed: str) -> dict[str, Any]:
        """Raise OSError and ValueError."""
        metadata: dict[str, Any] = json.loads((self._images / hexed / "image.json").read_bytes())
        return metadata

    def _last_used(self, hexed: str) -> float:
        with suppress(OSError):
            return (self._images / hexed / "image.json").stat().st_mtime
        return 0.0

    def _evict_one(self, hexed: str) -> bool:
        with try_lock(self._locks / hexed) as free:
            # Read again under the lock: `get` may have returned it since the list was made.
            if not free or time.time() - self._last_used(hexed) < self.settings.evict_grace:
                return False
            discarded = Path(tempfile.mkdtemp(prefix=f"{hexed}-", dir=self._scratch))
            (self._images / hexed).rename(discarded / "evicted")
            remove_tree(discarded)
            return True
