"""Trees of a hostile image, deeper than Python recurses and than a path is long: counted, removed, never in the way."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from supervise.instance import load_instance
from supervise.removal import remove_instance
from tests.vmbackend.deep_trees import deep_root, fill_levels
from tests.vmbackend.stores import MIB, pull
from vmbackend.errors import ImageBroken, ImageTooLarge
from vmbackend.images.limits import UsageLimit, tree_bytes
from vmbackend.images.store import ImageSettings, ImageStore
from vmbackend.libvirt.record import MachineDir
from vmbackend.trees import remove_tree

__all__ = ["deep_root"]
HEX = "a" * 64
LEVELS = 3000


@pytest.fixture
def deep_store(deep_root: Path) -> ImageStore:
    return ImageStore(deep_root, ImageSettings(local_store=deep_root / "oci"))


def test_a_deep_tree_is_removed_and_what_it_links_to_is_not(deep_root: Path, tmp_path: Path) -> None:
    tree = deep_root / "tree"
    tree.mkdir()
    fill_levels(tree, LEVELS)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (tree / "link").symlink_to(outside)
    (tree / "-rf").touch()
    assert remove_tree(tree)
    assert not tree.exists()
    assert (outside / "kept").exists()


def test_removal_says_whether_something_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert remove_tree(tmp_path / "absent")
    (tmp_path / "tree").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))  # a host without the program
    assert not remove_tree(tmp_path / "tree")


def test_a_machine_whose_folders_were_deepened_is_removed(deep_root: Path) -> None:
    files = MachineDir(deep_root, "one")
    files.create()
    files.resolver.mkdir()
    fill_levels(files.resolver, LEVELS)
    files.remove()
    assert not files.path.exists()
    files.remove()


def test_a_machine_that_cannot_be_removed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = MachineDir(tmp_path, "one")
    files.create()
    monkeypatch.setenv("PATH", str(tmp_path))  # a host without the program
    with pytest.raises(OSError, match="could not be removed"):
        files.remove()


@pytest.mark.parametrize("folder", ["machines/one/resolver", "libvirt/lib/qemu/domain-1-one", "cache/images/scratch/a"])
def test_an_instance_whose_folders_were_deepened_is_removed(deep_root: Path, folder: str) -> None:
    instance = load_instance(deep_root / "state", 8001)
    (instance.state / folder).mkdir(parents=True)
    fill_levels(instance.state / folder, LEVELS)
    remove_instance(instance, lambda _: None)
    assert not instance.state.exists()


def test_a_sweep_removes_deep_scratch_of_a_dead_pull(deep_root: Path, deep_store: ImageStore) -> None:
    dead = deep_root / "scratch" / f"{HEX}-dead"
    dead.mkdir()
    fill_levels(dead, LEVELS)
    assert deep_store.sweep() == [dead.name]
    assert not dead.exists()


def test_a_failed_pull_of_a_deep_tree_says_why_and_leaves_nothing(
    deep_root: Path, deep_store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(reference: object, digest: str, scratch: Path, job: object) -> None:
        fill_levels(scratch, LEVELS)
        raise ImageBroken("The layers are damaged.")

    monkeypatch.setattr(deep_store, "_resolve", lambda *_: f"sha256:{HEX}")
    monkeypatch.setattr(deep_store, "_fill", fails)
    with pytest.raises(ImageBroken, match=r"The layers are damaged\."):
        pull(deep_store, "localhost/deep")
    assert list((deep_root / "scratch").iterdir()) == []


def test_a_tree_whose_paths_exceed_the_kernels_limit_is_too_large(deep_root: Path) -> None:
    fill_levels(deep_root, 2100, content=bytes(MIB))
    assert tree_bytes(deep_root) == sys.maxsize
    with pytest.raises(ImageTooLarge):
        UsageLimit(deep_root, 1 << 40, ImageSettings(min_free_bytes=0)).check_usage()


def test_a_file_is_counted_whose_own_path_exceeds_the_kernels_limit(deep_root: Path) -> None:
    """The folder's path is within it, but not that of the file."""
    levels, rest = divmod(4000 - len(str(deep_root)), 201)
    last = deep_root / ("r" * max(1, rest - 1))
    last.mkdir()
    fill_levels(last, levels, name="d" * 200, file="f" * 250, content=os.urandom(MIB))
    assert MIB <= tree_bytes(deep_root) < 2 * MIB


def test_links_are_not_followed_when_a_tree_is_counted(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(os.urandom(MIB))
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file").symlink_to(tmp_path / "big")
    (tree / "folder").symlink_to(tmp_path)
    assert tree_bytes(tree) < MIB
    assert tree_bytes(tree / "folder") == 0  # a folder that was replaced by a link after it was found
