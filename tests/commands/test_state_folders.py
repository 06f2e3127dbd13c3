"""Which folders are state folders, under which path, and what of them is removed."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from edge.challenges import challenges_folder
from edge.domain_files import domains_folder
from supervise.instance import InstanceError, load_instance
from supervise.removal import remove_instance
from supervise.state_folder import PARTS


def silent(_: str) -> None:
    pass


def content(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.lstat().st_mode for path in (folder, *folder.rglob("*"))}


def test_a_folder_with_other_content_is_left_as_it_is(tmp_path: Path) -> None:
    """`STATE=/var` for `./var`: its log, its cache and its run would get the modes of an instance's, or be removed."""
    var = tmp_path / "var"
    for name in ("cache", "lib", "log/apt", "run/sshd"):
        (var / name).mkdir(parents=True)
    (var / "log/apt/term.log").write_text("")
    before = content(var)
    with pytest.raises(InstanceError, match="'lib'"):
        load_instance(var, 8001)
    assert content(var) == before


def test_a_prepared_folder_becomes_an_instance(tmp_path: Path) -> None:
    for name in ("machines", "lost+found"):
        (tmp_path / "a" / name).mkdir(parents=True)
    (tmp_path / "a" / "settings.env").write_text("PLATFORM_LOG_LEVEL=DEBUG\n")
    (tmp_path / "a" / ".instance.json.0a1b2c3d").write_text("")  # of a command that was killed
    assert load_instance(tmp_path / "a", 8001).settings({}).log_level == "DEBUG"


def test_what_the_platform_writes_into_the_folder_is_known_as_a_part_of_it(tmp_path: Path) -> None:
    """Otherwise a folder that has lost its `instance.json` is refused, and a removal from a shared folder leaves it."""
    written = {path.relative_to(tmp_path).parts[0] for path in (challenges_folder(tmp_path), domains_folder(tmp_path))}
    assert written == {"acme", "domains"}
    assert written | {"pages", "cdn", "keys"} <= PARTS


def test_a_link_to_a_state_folder_leads_to_the_same_instance(tmp_path: Path) -> None:
    made = load_instance(tmp_path / "a", 8001)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert load_instance(tmp_path / "link", 8001) == made
    assert load_instance(tmp_path / "a", 8001) == made


def test_an_instance_that_was_made_by_a_link_is_the_same_by_its_own_path(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    made = load_instance(tmp_path / "link", 8001)
    assert load_instance(tmp_path / "a", 8001) == made
    assert load_instance(tmp_path / "link", 8001) == made


def test_a_copy_of_a_state_folder_is_another_instance(tmp_path: Path) -> None:
    one = load_instance(tmp_path / "a", 8001)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    two = load_instance(tmp_path / "b", 8001)
    assert (two.state, two.id == one.id, two.subnet == one.subnet) == (tmp_path / "b", False, False)
    assert load_instance(tmp_path / "a", 8001) == one


def test_a_link_that_leads_to_itself_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "a")
    with pytest.raises(InstanceError, match="state folder"):
        load_instance(tmp_path / "a", 8001)


@pytest.mark.parametrize("text", ["[]", "null", "7"])
def test_an_instance_file_without_an_object_is_an_error(tmp_path: Path, text: str) -> None:
    load_instance(tmp_path / "a", 8001)
    (tmp_path / "a" / "instance.json").write_text(text)
    with pytest.raises(InstanceError, match="backup"):
        load_instance(tmp_path / "a", 8001)


def test_settings_that_are_no_text_are_an_error(tmp_path: Path) -> None:
    made = load_instance(tmp_path / "a", 8001)
    (tmp_path / "a" / "settings.env").write_bytes(b"PLATFORM_BIND=\xff\xfe\n")
    with pytest.raises(InstanceError, match=r"settings\.env"):
        made.settings({})


def test_the_removal_of_an_instance_goes_on_where_it_ended(tmp_path: Path) -> None:
    made = load_instance(tmp_path / "a", 8001)
    (tmp_path / "a" / "notes").mkdir()
    stuck = tmp_path / "a" / "machines"
    stuck.symlink_to(tmp_path)  # what leads elsewhere is not followed
    remove_instance(made, silent)
    assert not made.state.exists()
    assert tmp_path.exists()


def test_the_removal_by_a_link_removes_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    remove_instance(load_instance(tmp_path / "link", 8001), silent)
    assert not list(tmp_path.iterdir())


def test_the_removal_of_an_instance_in_a_shared_folder_leaves_what_is_not_its_own(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    (shared / "of-another-user").mkdir(parents=True)
    shared.chmod(0o1777)
    remove_instance(load_instance(shared, 8001), silent)
    assert [path.name for path in shared.iterdir()] == ["of-another-user"]
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777


def test_the_operators_key_counts_and_the_generated_one_stays_valid(tmp_path: Path) -> None:
    made = load_instance(tmp_path / "a", 8001)
    generated = made.settings({}).secret_key
    key = "the-operators-key-of-more-than-32-characters"
    (made.state / "settings.env").write_text(f"PLATFORM_SECRET_KEY={key}\nPLATFORM_SECRET_KEY_FALLBACKS=older\n")
    settings = made.settings({})
    assert (settings.secret_key, settings.secret_key_fallbacks) == (key, ("older", generated))


@pytest.mark.parametrize("place", ["file", "caller"])
def test_an_empty_key_is_none(tmp_path: Path, place: str) -> None:
    made = load_instance(tmp_path / "a", 8001)
    generated = made.settings({}).secret_key
    if place == "file":
        (made.state / "settings.env").write_text("PLATFORM_SECRET_KEY=\n")
    settings = made.settings({"PLATFORM_SECRET_KEY": ""} if place == "caller" else {})
    assert (settings.secret_key, settings.secret_key_fallbacks) == (generated, ())
