"""Small images for the tests, built once into the local store that all instances of the tests share."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from vmbackend.errors import ImageNotFound
from vmbackend.images.build import add_directory_image
from vmbackend.images.layout import blob_path, find_local
from vmbackend.images.reference import parse_reference
from vmbackend.images.types import ImageConfig

# The tag is a version: a change of what is inside takes a new one, because the store outlives the tests.
BUSYBOX = "localhost/tests-busybox:1"
EMPTY = "localhost/tests-empty:1"
FOREIGN = "localhost/tests-arm64:1"
# In the environment of each.
OWN = "FROM_IMAGE=yes"
WEB_SOURCE = Path(__file__).with_name("web.c")
# Busybox and `/bin/web`.
WEB = f"localhost/tests-web:{hashlib.sha256(WEB_SOURCE.read_bytes()).hexdigest()[:16]}"


def add_images(store: Path, scratch: Path) -> None:
    """Make what is missing. `scratch` is an empty folder of the caller's."""
    for name, arch in ((BUSYBOX, "amd64"), (EMPTY, "amd64"), (FOREIGN, "arm64"), (WEB, "amd64")):
        if not has_image(store, name):
            root = scratch / name.replace("/", "_")
            root.mkdir()
            if name in (BUSYBOX, WEB):
                busybox_root(root)
            if name == WEB:
                build_web(root / "bin/web")
            add_image(store, name, root, arch=arch)


def add_image(store: Path, name: str, root: Path, *, arch: str = "amd64") -> None:
    """A directory as an image; its environment shows that the image's own reaches the machine."""
    add_directory_image(store, name, root, ImageConfig(env=dict([OWN.split("=")])), arch=arch)


def busybox_root(root: Path) -> None:
    """A shell with all of busybox, and a user `dev`; no library at all."""
    for folder in ("bin", "etc", "root", "home/dev", "tmp"):
        (root / folder).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    listed = subprocess.run(["/bin/busybox", "--list"], capture_output=True, text=True, check=True).stdout.split()
    for applet in set(listed) - {"busybox"}:
        (root / "bin" / applet).symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\ndev:x:1000:1000::/home/dev:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\ndev:x:1000:\n")


def build_web(to: Path) -> None:
    """The small web server as a program that needs no library."""
    subprocess.run(["musl-gcc", "-static", "-O2", "-Wall", "-Werror", "-o", str(to), str(WEB_SOURCE)], check=True)


def has_image(store: Path, name: str) -> bool:
    """Whether the local store has it, made here: an instance run by hand may have built its own under that name."""
    try:
        manifest = read_blob(store, find_local(store, parse_reference(name)))
    except ImageNotFound:
        return False
    return OWN in read_blob(store, manifest["config"]["digest"])["config"].get("Env", [])


def read_blob(store: Path, digest: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(blob_path(store, digest).read_text())
    return document
