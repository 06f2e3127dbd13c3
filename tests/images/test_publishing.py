"""How the images of `make images` are made and published, without a machine."""

from __future__ import annotations

import os
import stat
import tarfile
from pathlib import Path

import pytest

from tests.images.__main__ import RECIPES
from tests.images.languages import LANGUAGES
from tests.images.layers import bare_layer, pack
from tests.images.publish import publish
from tests.images.servers import SERVERS
from tests.images.services import SERVICES
from tests.images.small import SMALL
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
