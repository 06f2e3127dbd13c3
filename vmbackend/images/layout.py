"""OCI image layouts on disk: the local store, and the scratch layouts the tools work on.

The local store is read without a lock: blobs are immutable and `index.json` is replaced by a rename.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from vmbackend.errors import ImageBroken, ImageNotFound
from vmbackend.images.reference import Reference
from vmbackend.images.types import Job
from vmbackend.locks import wait_lock

REF_NAME = "org.opencontainers.image.ref.name"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
Descriptor = dict[str, Any]


def read_index(layout: Path) -> list[Descriptor]:
    """Return the entries of a layout; empty if there is none. Raise ImageBroken."""
    try:
        entries = json.loads((layout / "index.json").read_bytes())["manifests"]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ImageBroken("The local image store cannot be read.") from error
    return [entry for entry in entries if isinstance(entry, dict)]


def find_local(layout: Path, reference: Reference) -> str:
    """Return the digest a `localhost/...` reference names. Raise ImageNotFound, ImageBroken.

    A digest stays valid after its tag has moved: workspaces refer to the image they were created from.
    """
    if reference.digest and blob_path(layout, reference.digest).is_file():
        return reference.digest
    for entry in read_index(layout):
        if reference.digest is None and entry.get("annotations", {}).get(REF_NAME) == reference.tagged:
            return str(entry.get("digest"))
    raise ImageNotFound(f"There is no image {reference} in the local image store.")


def blob_path(layout: Path, digest: str) -> Path:
    """Return the path of a blob. `digest` must be a checked `sha256:<hex>`."""
    algorithm, _, value = digest.partition(":")
    return layout / "blobs" / algorithm / value


def write_synced(path: Path, content: bytes) -> None:
    """Replace a file atomically; after a crash it is the old one or the complete new one."""
    beside = path.with_name(f".{path.name}.new")
    with beside.open("wb") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())
    beside.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Sync the names in a directory to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_view(view: Path, layout: Path, digest: str, *, inside: str) -> tuple[tuple[Path, str], ...]:
    """Write a layout with one entry, tagged `image`, for the blobs of another; later tags do not affect it.

    Return what a confined tool must see to find it at the path `inside`: (path of the host, path inside). Raises
    ImageBroken if the manifest is missing or invalid JSON.
    """
    manifest = blob_path(layout, digest)
    try:
        content = manifest.read_bytes()
        document = json.loads(content)
        # Both kinds may omit the field, as umoci does.
        media_type = document.get("mediaType") or (OCI_INDEX if "manifests" in document else OCI_MANIFEST)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ImageBroken("The local image store is damaged.") from error
    (view / "blobs").mkdir(parents=True, exist_ok=True)
    entry = {
        "mediaType": media_type,
        "digest": digest,
        "size": len(content),
        "annotations": {REF_NAME: "image"},
    }
    _write_layout(view, [entry])
    blobs = (layout / "blobs").resolve()
    _let_others_read(view)
    _let_others_read(blobs)
    return (view, inside), (blobs, f"{inside}/blobs")


def _let_others_read(folder: Path) -> None:
    """Let confined tools, which are another user, read; no other user reaches the folder through those above it."""
    for path, _, names in os.walk(folder):
        Path(path).chmod(0o755)
        for name in names:
            file = Path(path, name)
            if not file.is_symlink() and file.stat().st_mode & 0o444 != 0o444:
                file.chmod(0o644)


def _write_layout(layout: Path, entries: list[Descriptor]) -> None:
    write_synced(layout / "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
    index = {"schemaVersion": 2, "manifests": entries}
    write_synced(layout / "index.json", json.dumps(index, indent=1).encode())


def publish_image(layout: Path, name: str, scratch: Path, job: Job) -> str:
    """Move the one image of the layout `scratch` into `layout` under `name`; return the manifest's digest.

    Blobs first and the index last, so a crash leaves at most unreferenced blobs. `scratch` must be on the same file
    system and is consumed. Blobs of an image that had the name before stay, as `find_local` documents.
    """
    (entry,) = read_index(scratch)
    layout.mkdir(parents=True, exist_ok=True)
    with wait_lock(layout / ".lock", job.check_cancelled):
        target = layout / "blobs" / "sha256"
        target.mkdir(parents=True, exist_ok=True)
        for source in (scratch / "blobs" / "sha256").iterdir():
            _sync_file(source)
            source.replace(target / source.name)
        sync_directory(target)
        others = [e for e in read_index(layout) if e.get("annotations", {}).get(REF_NAME) != name]
        _write_layout(layout, [*others, entry | {"annotations": {REF_NAME: name}}])
    return str(entry["digest"])


def _sync_file(path: Path) -> None:
    with path.open("rb") as handle:
        os.fsync(handle.fileno())
