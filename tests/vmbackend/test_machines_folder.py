"""The folder of machines outside the state folder: what belongs to no workspace in it is removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmbackend.errors import BackendUnavailable
from vmbackend.machines_folder import claim_folder

WORKSPACE = "ws_2kq7abcdefghijk2"


def test_a_new_folder_is_made_and_stays_its_instances(tmp_path: Path) -> None:
    claim_folder(tmp_path / "a" / "machines", "abcdef")
    (tmp_path / "a" / "machines" / WORKSPACE).mkdir()
    claim_folder(tmp_path / "a" / "machines", "abcdef")


@pytest.mark.parametrize("machines", [[], [WORKSPACE]])
def test_no_instance_uses_the_folder_of_another(tmp_path: Path, machines: list[str]) -> None:
    """Each would remove the machines of the other as orphans."""
    claim_folder(tmp_path, "abcdef")
    for name in machines:
        (tmp_path / name).mkdir()
    with pytest.raises(BackendUnavailable, match="abcdef"):
        claim_folder(tmp_path, "123456")
    claim_folder(tmp_path, "abcdef")


def test_a_folder_with_anything_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / WORKSPACE).mkdir()
    with pytest.raises(BackendUnavailable, match="'home'"):
        claim_folder(tmp_path, "abcdef")
    assert {path.name for path in tmp_path.iterdir()} == {"home", WORKSPACE}


def test_the_folder_of_an_earlier_version_is_taken_over(tmp_path: Path) -> None:
    for name in (WORKSPACE, "lost+found", ".probe", ".instance.abcdef"):
        (tmp_path / name).mkdir() if name != ".instance.abcdef" else (tmp_path / name).touch()
    claim_folder(tmp_path, "abcdef")
    with pytest.raises(BackendUnavailable):
        claim_folder(tmp_path, "123456")


def test_a_place_that_cannot_be_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BackendUnavailable, match="cannot be used"):
        claim_folder(tmp_path / "file", "abcdef")
