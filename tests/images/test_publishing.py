"""How the images of `make images` are made and published, without a machine."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest

from tests.images.__main__ import RECIPES
from tests.images.languages import LANGUAGES
from tests.images.layers import DebianLayers, bare_layer, pack
from tests.images.publish import publish
from tests.images.servers import SERVERS
from tests.images.services import SERVICES
from tests.images.small import SMALL
from tests.vm.client import until
from tests.vmbackend.stores import insecure_store, pull, registry, store, unpack
from vmbackend.images.store import ImageStore

__all__ = ["registry", "store"]
pytestmark = pytest.mark.host


def test_the_upper_folder_of_an_overlay_becomes_a_layer(tmp_path: Path) -> None:
    upper = tmp_path / "upper"
    (upper / "etc").mkdir(parents=True)
    (upper / "etc/file").write_text("x")
    os.mknod(upper / "etc/removed", stat.S_IFCHR, 0)
    (upper / "new").mkdir()
    os.setxattr(upper / "new", "trusted.overlay.opaque", b"y")
    pack(upper, tmp_path / "layer.tar.gz")
    with tarfile.open(tmp_path / "layer.tar.gz") as tar:
        found = {member.name: member.type for member in tar}
    assert found == {
        "etc": tarfile.DIRTYPE,
        "new": tarfile.DIRTYPE,
        "etc/file": tarfile.REGTYPE,
        "etc/.wh.removed": tarfile.REGTYPE,
        "new/.wh..wh..opq": tarfile.REGTYPE,
    }


def test_a_recipe_is_published_as_an_index_in_an_index(store: ImageStore, registry: str, tmp_path: Path) -> None:
    recipe = RECIPES["scratch"]
    (tmp_path / "scratch").mkdir()
    name = publish(registry, recipe, bare_layer(recipe, tmp_path / "scratch"), tmp_path / "scratch")
    image = pull(insecure_store(store, tmp_path, registry), name)
    assert (image.config.entrypoint, image.changes) == (("/web", "8080"), ())
    assert os.access(unpack(image, tmp_path / "out") / "web", os.X_OK)


def test_every_recipe_has_a_name_of_its_own() -> None:
    assert len(RECIPES) == len([*SMALL, *SERVERS, *SERVICES, *LANGUAGES])


def test_every_recipe_asks_for_something_and_knows_its_signal() -> None:
    """The answer of nothing is in every answer; the end that is not named is that of any signal."""
    recipes = RECIPES.values()
    assert [recipe.name for recipe in recipes if not recipe.probe.expect] == []
    assert [recipe.name for recipe in recipes if "StopSignal" in recipe.config and not recipe.ended] == []


def test_what_a_layer_runs_ends_with_the_command(tmp_path: Path) -> None:
    """A kill -9 of it ends what the image's packages run as they are installed."""
    base, layers = tmp_path / "base", DebianLayers(tmp_path / "layers")
    for name in ("bin", "proc", "dev", "etc", "var/lib/apt/lists", "var/cache/apt/archives"):
        (base / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", base / "bin/sh")
    (base / "etc/resolv.conf").touch()
    for name in ("lists", "archives"):
        (layers.folder / "apt" / name).mkdir(parents=True)
    mark = f"of-{tmp_path.name}-{os.getpid()}"
    code = "import sys; from pathlib import Path; from tests.images.layers import DebianLayers as L\n"
    code += "L(Path(sys.argv[1]))._run(sys.argv[2], [Path(sys.argv[3])], Path(sys.argv[4]))"
    script = f"echo {mark} >/started; exec sh -c 'read -r _ </fifo' {mark}"
    os.mkfifo(base / "fifo")
    arguments = [str(layers.folder), script, str(base), str(tmp_path / "upper")]
    running = subprocess.Popen([sys.executable, "-c", code, *arguments])
    try:
        until((tmp_path / "upper/started").exists, 60, "the layer's script runs")
        until(lambda: in_layer(mark), 60, "it waits")
    finally:
        running.kill()
        running.wait()
    until(lambda: not in_layer(mark), 60, "the script ends")


def in_layer(mark: str) -> bool:
    """Whether the script runs, whose last argument is the mark."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(entry.read_bytes())
    return any(line.endswith(f"\0{mark}\0".encode()) for line in found)
