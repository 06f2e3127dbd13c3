"""`scripts/npm.sh`: files of npm packages by hash, from a registry that a setting names."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from django.conf import settings

SCRIPT = Path(settings.ROOT) / "scripts" / "npm.sh"
LOCK = Path(settings.ROOT) / "npm.lock"


def archive(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"package/lib/{name}.js")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


@dataclass
class Tree:
    """A checkout with a lock of its own, and the registry."""

    root: Path
    served: Path
    registry: str

    def publish(self, group: str, package: str, data: bytes, *, said: bytes | None = None) -> None:
        name = package.rpartition("/")[2]
        place = self.served / package / "-" / f"{name}-1.0.0.tgz"
        place.parent.mkdir(parents=True)
        place.write_bytes(data)
        known = hashlib.sha512(data if said is None else said).hexdigest()
        with (self.root / "npm.lock").open("a") as lock:
            lock.write(f"# why\n{group} {package} 1.0.0 {known} lib/one.js\n")

    def bring(self, group: str, registry: str | None = None) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "npm_config_registry": self.registry if registry is None else registry}
        return subprocess.run([str(self.root / "scripts/npm.sh"), group], env=env, capture_output=True, text=True)

    def brought(self) -> dict[str, bytes]:
        folder = self.root / ".venv/share/npm"
        return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob("*/*"))}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    root, served = tmp_path / "tree", tmp_path / "served"
    (root / "scripts").mkdir(parents=True)
    served.mkdir()
    shutil.copy(SCRIPT, root / "scripts/npm.sh")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Tree(root, served, f"http://127.0.0.1:{server.server_address[1]}/")
        server.shutdown()


def test_the_files_that_the_lock_names_are_brought_once(tree: Tree) -> None:
    tree.publish("run", "@some/tool", archive(one=b"1", two=b"2"))
    tree.publish("dev", "other", archive(one=b"3"))
    assert tree.bring("run").returncode == 0
    assert tree.brought() == {"tool/one.js": b"1"}
    assert tree.bring("dev").returncode == 0
    assert tree.brought() == {"other/one.js": b"3", "tool/one.js": b"1"}
    # Both are satisfied now; the registry is not asked.
    for group in ("run", "dev"):
        again = tree.bring(group, "http://127.0.0.1:1")
        assert (again.returncode, again.stderr) == (0, "")


def test_without_the_registry_it_says_so_ends_well_and_tries_again(tree: Tree) -> None:
    tree.publish("run", "tool", archive(one=b"1"))
    away = tree.bring("run", "http://127.0.0.1:1")
    assert away.returncode == 0
    assert "The terminal page of sandboxes is not installed" in away.stderr
    assert tree.brought() == {}
    assert tree.bring("run").returncode == 0
    assert tree.brought() == {"tool/one.js": b"1"}


def test_another_archive_than_the_locks_is_an_error_and_nothing_of_it_is_used(tree: Tree) -> None:
    tree.publish("run", "good", archive(one=b"1"))
    tree.publish("run", "bad", archive(one=b"evil"), said=archive(one=b"good"))
    refused = tree.bring("run")
    assert refused.returncode == 1
    assert "bad 1.0.0 is not what npm.lock says" in refused.stderr
    assert tree.brought() == {}


def test_every_package_of_the_lock_is_pinned_and_has_its_licence_beside_it() -> None:
    lines = [line.split() for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]
    for group, _, version, sha512, *files in lines:
        assert group in ("run", "dev")
        assert version.count(".") == 2
        assert len(bytes.fromhex(sha512)) == 64
        assert group == "dev" or "LICENSE" in files
