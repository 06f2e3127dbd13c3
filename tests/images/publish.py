"""Images in a registry, as their builders publish them: manifest, configuration, layers, and indexes."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import httpx

from tests.images.recipe import Recipe
from tests.vmbackend.registry import push

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
OURS = {"platform": {"os": "linux", "architecture": "amd64"}}
OTHER = {"platform": {"os": "linux", "architecture": "arm64", "variant": "v8"}}
UNKNOWN = {"platform": {"os": "unknown", "architecture": "unknown"}}


def publish(registry: str, recipe: Recipe, layers: list[Path], scratch: Path) -> str:
    """Publish the recipe's image; returns its name. Some are an index in an index."""
    layout, name = scratch / "layout", f"{registry}/trials/{recipe.name}"
    manifest = write_layout(layout, recipe, layers)
    push(layout, "image", f"{name}:leaf")
    if not recipe.nested:
        return f"{name}:leaf"
    # Another platform's entry comes first, and the inner index says nothing about a platform.
    inner = put_index(registry, recipe.name, "inner", [manifest | UNKNOWN, manifest | OURS])
    put_index(registry, recipe.name, "latest", [manifest | OTHER, inner])
    return f"{name}:latest"


def write_layout(layout: Path, recipe: Recipe, layers: list[Path]) -> dict[str, Any]:
    """A layout with the image; returns the descriptor of its manifest."""
    blobs = layout / "blobs/sha256"
    blobs.mkdir(parents=True)
    config = {
        "os": "linux",
        "architecture": "amd64",
        "config": recipe.config,
        "rootfs": {"type": "layers", "diff_ids": [plain_digest(layer) for layer in layers]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": write_blob(blobs, json.dumps(config).encode(), CONFIG),
        "layers": [link_blob(blobs, layer) for layer in layers],
    }
    described = write_blob(blobs, json.dumps(manifest).encode(), MANIFEST)
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    named = described | {"annotations": {"org.opencontainers.image.ref.name": "image"}}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [named]}))
    return described


def put_index(registry: str, name: str, tag: str, manifests: list[dict[str, Any]]) -> dict[str, Any]:
    body = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).encode()
    address = f"http://{registry}/v2/trials/{name}/manifests/{tag}"
    httpx.put(address, content=body, headers={"Content-Type": INDEX}, trust_env=False).raise_for_status()
    return descriptor(body, INDEX)


def descriptor(content: bytes, media_type: str) -> dict[str, Any]:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def write_blob(blobs: Path, content: bytes, media_type: str) -> dict[str, Any]:
    found = descriptor(content, media_type)
    (blobs / found["digest"][7:]).write_bytes(content)
    return found


def link_blob(blobs: Path, layer: Path) -> dict[str, Any]:
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    shutil.copy(layer, blobs / digest)
    return {"mediaType": LAYER, "digest": f"sha256:{digest}", "size": layer.stat().st_size}


def plain_digest(layer: Path) -> str:
    """Of the layer as it is unpacked."""
    with gzip.open(layer, "rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return f"sha256:{digest.hexdigest()}"
