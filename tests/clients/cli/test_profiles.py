"""Profiles: who can read them, writers at once, and which credential a command uses."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from microvm.cli.connection import checked_url, find_connection, is_unencrypted
from microvm.cli.failures import CommandError
from microvm.cli.profiles import PrivateFile, Profile, ProfileStore
from microvm.cli.recent import RecentStore, SavedSandbox
from tests.clients.cli.runner import SOURCES, Ws

ONE = Profile("https://one.example", "cl_one", "secret-one")
TWO = Profile("https://two.example", "cl_two", "secret-two")


@pytest.fixture
def store(tmp_path: Path) -> ProfileStore:
    made = ProfileStore(tmp_path / "config")
    made.save("one", ONE)
    return made


def test_only_the_owner_reads_profiles(store: ProfileStore) -> None:
    before = os.umask(0)
    try:
        store.save("two", TWO)
        RecentStore("account", store.path.parent).remember("ws_1")
    finally:
        os.umask(before)
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    for path in store.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_a_file_that_others_could_read_is_closed_by_the_next_change(store: ProfileStore) -> None:
    store.path.chmod(0o644)
    store.save("two", TWO)
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from microvm.cli.profiles import Profile, ProfileStore\n"
        "profile, store = Profile('https://x.example', 'c', 's'), ProfileStore(Path(sys.argv[1]))\n"
        "for n in range(20): store.save(f'{sys.argv[2]}-{n}', profile)"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    processes = [subprocess.Popen([*words, str(number)], env=environment) for number in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert len(ProfileStore(tmp_path).settings().profiles) == 80
    assert not list(tmp_path.glob("*.part"))


def test_a_change_that_fails_leaves_the_file(store: ProfileStore) -> None:
    def fail(content: dict[str, object]) -> None:
        content.clear()
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        PrivateFile(store.path).update(fail)
    assert store.profile("one") == ONE


@pytest.mark.parametrize("text", ["", "[]", "{", '{"profiles": {"one": {"unknown": 1}}}', '{"profiles": []}'])
def test_a_damaged_file_is_one_sentence(store: ProfileStore, text: str) -> None:
    store.path.write_text(text)
    with pytest.raises(CommandError, match=r"profiles\.json"):
        store.settings()
    ws = Ws(store.path.parent)
    assert "log in again" in ws.fails(1, "profiles")


def test_the_environment_overrides_the_profile(store: ProfileStore) -> None:
    assert find_connection(None, store, {}).profile == ONE
    environ = {"MICROVM_CLIENT_SECRET": "other"}
    assert find_connection(None, store, environ).profile == Profile(ONE.base_url, "cl_one", "other")
    assert find_connection(None, store, {"MICROVM_TOKEN": "t"}).client_options() == {"token": "t"}
    store.save("two", TWO)
    assert find_connection(None, store, {"MICROVM_PROFILE": "one"}).profile == ONE
    assert find_connection("one", store, {"MICROVM_TOKEN": "t", "MICROVM_URL": "http://x"}).profile == ONE


def test_without_a_profile_the_environment_is_enough(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    environ = {"MICROVM_URL": "http://localhost:8000/", "MICROVM_CLIENT_ID": "c"}
    with pytest.raises(CommandError, match="no whole credential"):
        find_connection(None, store, environ)
    found = find_connection(None, store, {**environ, "MICROVM_CLIENT_SECRET": "s"})
    assert (found.profile.base_url, found.source) == ("http://localhost:8000", "the environment")
    with pytest.raises(CommandError, match="not logged in"):
        find_connection(None, store, {})
    with pytest.raises(CommandError, match="no profile"):
        find_connection("absent", store, {})


def test_secrets_are_in_no_text(store: ProfileStore) -> None:
    sandbox = SavedSandbox("sbx_1", "agent", "http://x", "sbt_secret")
    shown = f"{store.settings()} {find_connection(None, store, {})} {sandbox}"
    assert "secret" not in shown.replace("client_secret", "")
    ws = Ws(store.path.parent)
    assert "secret-one" not in ws.output("profiles") + ws.output("profiles", "--json")


def test_profiles_are_chosen_and_removed(store: ProfileStore) -> None:
    store.save("two", TWO)
    ws = Ws(store.path.parent)
    assert [(row["name"], row["active"]) for row in ws.json("profiles")] == [("one", False), ("two", True)]
    ws.output("profiles", "--use", "one")
    assert store.settings().active == "one"
    ws.output("logout")
    assert list(store.settings().profiles) == ["two"]
    assert store.settings().active == "two"
    assert "no profile" in ws.fails(3, "logout", "one")
    assert "secret-one" not in store.path.read_text()


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "x.example", "http://", "http://user:pw@x", "http://x?a=1", "http://x:99999", "http://[::1"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(CommandError, match="no address"):
        checked_url(url)


def test_a_plain_address_in_a_network_is_told_apart() -> None:
    assert is_unencrypted("http://platform.example")
    assert not is_unencrypted("https://platform.example")
    assert not is_unencrypted("http://127.0.0.1:8000")


@pytest.mark.parametrize("text", ["", "BASE_URL=http://x\nCLIENT_ID=c\n", "# BASE_URL=http://x"])
def test_a_file_without_the_credential_says_what_is_missing(tmp_path: Path, text: str) -> None:
    (tmp_path / "credentials.env").write_text(text)
    assert "CLIENT_SECRET" in Ws(tmp_path).fails(2, "login", "--file", tmp_path / "credentials.env")
    assert "No such file" in Ws(tmp_path).fails(1, "login", "--file", tmp_path / "absent")


def test_a_login_without_a_terminal_says_what_to_give(tmp_path: Path) -> None:
    ws = Ws(tmp_path)
    assert "--url" in ws.fails(2, "login")
    assert "--client-id" in ws.fails(2, "login", "--url", "http://127.0.0.1:9")
    assert "--secret-stdin" in ws.fails(2, "login", "--url", "http://127.0.0.1:9", "--client-id", "c")
    assert "no secret" in ws.fails(2, "login", "--url", "http://x", "--client-id", "c", "--secret-stdin", stdin="")


def test_the_last_workspace_is_remembered_for_each_account(tmp_path: Path) -> None:
    one, two = RecentStore("one", tmp_path), RecentStore("two", tmp_path)
    one.remember("ws_1")
    two.remember("ws_2")
    assert (one.last(), two.last()) == ("ws_1", "ws_2")
    one.forget("ws_1")
    assert one.last() is None
    for number in range(105):
        two.remember_sandbox(SavedSandbox(f"sbx_{number}", "same", "u", "t"))
    assert two.sandbox("sbx_4") is None
    found = two.sandbox("same")
    assert found is not None
    assert found.id == "sbx_104"
    assert len(json.loads((tmp_path / "recent.json").read_text())["two"]["sandboxes"]) == 100
