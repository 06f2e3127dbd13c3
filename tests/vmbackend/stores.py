"""Image stores and images for the tests of images."""

from __future__ import annotations

import io
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.vmbackend.registry import running_registry
from vmbackend.images.store import Image, ImageConfig, ImageSettings, ImageStore

MIB = 1 << 20
SECRET_HASH = "$2b$04$kHRTyCNNT0PSbrZsotevbOcAfxycSLNYyZuz1D8cyXAXxhAZhoZCC"  # bcrypt of "secret"
CONFIG = ImageConfig(
    entrypoint=("/init", "-x"),
    cmd=("a b", "c"),
    env={"PATH": "/bin", "X": "1=2"},
    working_dir="/srv",
    user="1000:1000",
    exposed_ports=("8080/tcp",),
    volumes=("/data",),
    labels={"k": "v"},
)


def pull(store: ImageStore, reference: str, **changes: Any) -> Image:
    arguments: dict[str, Any] = {"progress": lambda *_: None, "deadline": time.monotonic() + 60}
    return store.ensure(reference, **(arguments | changes))


def unpack(image: Image, target: Path) -> Path:
    subprocess.run(["unsquashfs", "-q", "-n", "-d", target, image.rootfs], check=True, capture_output=True)
    return target


def partial_work(root: Path) -> list[Path]:
    return [path for path in (root / "scratch").iterdir() if path.is_dir()]


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    path = tmp_path / "rootfs"
    (path / "etc").mkdir(parents=True)
    (path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    return path


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    settings = ImageSettings(local_store=tmp_path / "oci", evict_grace=0, registry_timeout=10)
    return ImageStore(tmp_path / "root", settings)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    with running_registry(tmp_path / "registry") as address:
        yield address


def insecure_store(store: ImageStore, tmp_path: Path, *registries: str, **changes: Any) -> ImageStore:
    settings = replace(store.settings, insecure_registries=registries, **changes)
    return ImageStore(tmp_path / "root", settings)


def layered_image(layout: Path, layers: list[Callable[[tarfile.TarFile], None]], name: str = "image") -> None:
    """An image of the given layers, which may contain whiteouts and hostile names."""
    for argv in (["init", "--layout", layout], ["new", "--image", f"{layout}:{name}"]):
        subprocess.run(["umoci", *map(str, argv)], check=True, capture_output=True)
    for fill in layers:
        buffer = layout.parent / "layer.tar"
        with tarfile.open(buffer, "w", format=tarfile.PAX_FORMAT) as tar:
            fill(tar)
        argv = ["umoci", "raw", "add-layer", "--image", f"{layout}:{name}", str(buffer)]
        subprocess.run(argv, check=True, capture_output=True)


def add_file(tar: tarfile.TarFile, name: str, content: bytes = b"x", **fields: Any) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o644
    for key, value in fields.items():
        setattr(info, key, value)
    tar.addfile(info, io.BytesIO(content))
