"""What an instance derives from its state folder and port."""

from __future__ import annotations

import ipaddress
import os
import shlex
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from supervise import subnets as module
from supervise.instance import ROOT, InstanceError, load_instance
from supervise.subnets import SUBNETS

Shell = Callable[[dict[str, str]], None]


def test_two_state_folders_share_no_name_and_no_subnet(tmp_path: Path) -> None:
    one, two = load_instance(tmp_path / "a", 8001), load_instance(tmp_path / "b", 8002)
    mine, yours = one.settings({}).variables(), two.settings({}).variables()
    for key in (
        "INSTANCE",
        "STATE",
        "SUBNET",
        "REDIS_URL",
        "DATABASE_URL",
        "LIBVIRT_URI",
        "SECRET_KEY",
        "BASE_URL",
    ):
        assert mine[f"PLATFORM_{key}"] != yours[f"PLATFORM_{key}"], key
    assert not ipaddress.ip_network(one.subnet).overlaps(ipaddress.ip_network(two.subnet))


def test_the_subnet_and_the_key_of_an_instance_do_not_change_with_the_routes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_instance(tmp_path / "a", 8001)
    monkeypatch.setattr(module, "routed_networks", lambda: [ipaddress.IPv4Network(first.subnet)])
    again = load_instance(tmp_path / "a", 9001)
    assert again.subnet == first.subnet
    assert again.settings({}).secret_key == first.settings({}).secret_key


def test_a_routed_subnet_is_not_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ipaddress.IPv4Network(load_instance(tmp_path / "a", 8001).subnet)
    (tmp_path / "a" / "instance.json").unlink()
    monkeypatch.setattr(module, "routed_networks", lambda: [wanted.supernet(new_prefix=16)])
    chosen = ipaddress.IPv4Network(load_instance(tmp_path / "a", 8001).subnet)
    assert not chosen.overlaps(wanted.supernet(new_prefix=16))
    assert chosen.subnet_of(SUBNETS)
    assert chosen.prefixlen == 20


def test_a_long_state_path_gets_a_short_link_for_sockets(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 80)
    made = load_instance(folder, 8001)
    try:
        assert len(str(made.run_dir)) < 40
        assert made.short.resolve() == folder
        made.short.unlink()  # what a reboot does
        assert load_instance(folder, 8001).short.resolve() == folder
    finally:
        made.short.unlink(missing_ok=True)


def test_secrets_are_readable_by_the_owner_only(tmp_path: Path) -> None:
    made = load_instance(tmp_path / "a", 8001)
    assert stat.S_IMODE((made.state / "secrets.env").stat().st_mode) == 0o600
    assert stat.S_IMODE(made.run_dir.stat().st_mode) == 0o700


def test_the_environment_overrides_the_settings_file_and_the_file_the_defaults(tmp_path: Path) -> None:
    made = load_instance(tmp_path / "a", 8001)
    (made.state / "settings.env").write_text("PLATFORM_CACHE_DIR=/from/file\nPLATFORM_LOG_LEVEL=DEBUG\nOTHER=1\n")
    values = made.settings({"PLATFORM_LOG_LEVEL": "ERROR", "PLATFORM_STATE": "/somewhere/else"}).variables()
    assert values["PLATFORM_LOG_LEVEL"] == "ERROR"
    assert values["PLATFORM_KIT_DIR"] == "/from/file/kit"
    assert values["PLATFORM_STATE"] == str(made.state)
    assert "OTHER" not in values


def test_the_name_in_the_base_url_is_an_allowed_host(tmp_path: Path) -> None:
    values = load_instance(tmp_path / "a", 8001).settings({"PLATFORM_BASE_URL": "https://vm.example.org"})
    assert "vm.example.org" in values.allowed_hosts


@pytest.mark.parametrize("port", ["0", "70000", "http"])
def test_an_invalid_port_is_refused(tmp_path: Path, port: str) -> None:
    with pytest.raises(InstanceError, match="PORT"):
        load_instance(tmp_path / "a", port)


@pytest.mark.parametrize("name", ["with space", 'quo"te', "semi;colon", "per%cent"])
def test_a_state_path_that_configuration_files_cannot_carry_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InstanceError, match="STATE"):
        load_instance(tmp_path / name, 8001)


def test_a_broken_instance_file_is_an_error_and_is_not_replaced(tmp_path: Path) -> None:
    made = load_instance(tmp_path / "a", 8001)
    (made.state / "instance.json").write_text("{")
    with pytest.raises(InstanceError, match="backup"):
        load_instance(tmp_path / "a", 8001)
    assert (made.state / "instance.json").read_text() == "{"


def test_the_port_of_the_settings_file_counts_where_the_caller_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_instance(tmp_path / "a")
    (tmp_path / "a" / "settings.env").write_text("PLATFORM_PORT=9123\n")
    made = load_instance(tmp_path / "a")
    assert (made.port, made.settings({}).base_url) == (9123, "http://127.0.0.1:9123")
    monkeypatch.setenv("PORT", "9200")
    assert load_instance(tmp_path / "a").port == 9200


def test_make_passes_a_port_only_where_one_is_given(tmp_path: Path) -> None:
    """`make env` needs no installed package: it prints what the commands of this instance use."""
    state = tmp_path / "a"
    load_instance(state)
    (state / "settings.env").write_text("PLATFORM_PORT=9123\n")
    assert exported(make_env(state))["PLATFORM_PORT"] == "9123"
    assert exported(make_env(state, "PORT=9200"))["PLATFORM_PORT"] == "9200"


def test_the_exported_settings_of_one_instance_do_not_reach_another(tmp_path: Path, shell: Shell) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    first = load_instance(one, 8001)
    (one / "settings.env").write_text("PLATFORM_CACHE_DIR=/cache/of/one\nPLATFORM_PORT=9123\n")
    alone = load_instance(two).settings().variables()
    shell(exported(make_env(one)))
    assert load_instance(two).settings().variables() == alone
    # The same shell still reaches the instance that it was made for.
    again = load_instance(one).settings()
    assert (again.instance, again.secret_key) == (first.id, first.settings().secret_key)
    assert (str(again.cache_dir), again.port) == ("/cache/of/one", 9123)


def test_a_setting_of_the_callers_own_reaches_every_instance(tmp_path: Path, shell: Shell) -> None:
    load_instance(tmp_path / "one", 8001)
    shell(exported(make_env(tmp_path / "one")) | {"PLATFORM_CACHE_DIR": "/srv/cache"})
    assert str(load_instance(tmp_path / "two").settings().cache_dir) == "/srv/cache"


def test_everything_in_a_state_folder_is_its_owners_alone(tmp_path: Path) -> None:
    """Also in one that an earlier version made; others may only pass through to machines, kernel and images."""
    state = tmp_path / "a"
    load_instance(state, 8001)
    for name in ("machines", "libvirt", "keys", "static/css"):
        (state / name).mkdir(parents=True)
    for name in (
        "log/api.log",
        "log/api.log.1",
        "keys/control_ed25519",
        "static/css/a",
    ):
        (state / name).write_text("")
    for path in (state, *state.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    load_instance(state, 8001)
    modes = {str(path.relative_to(state)): stat.S_IMODE(path.stat().st_mode) for path in (state, *state.rglob("*"))}
    passed_through = {".", "machines", "libvirt", "cache"}
    assert {name for name, mode in modes.items() if mode & 0o077} == passed_through
    assert {modes[name] for name in passed_through} == {0o711}


def test_a_folder_that_is_shared_by_intent_keeps_its_mode(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    load_instance(shared, 8001)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
    assert stat.S_IMODE((shared / "secrets.env").stat().st_mode) == 0o600


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Exports variables, as `eval` does; the shell had none of the platform's before."""
    for name in os.environ:
        if name.startswith("PLATFORM_"):
            monkeypatch.delenv(name)

    def export(values: dict[str, str]) -> None:
        for key, value in values.items():
            monkeypatch.setenv(key, value)

    return export


def make_env(state: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(state)}
    command = ["make", "--silent", "env", f"STATE={state}", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


def exported(lines: str) -> dict[str, str]:
    words = [shlex.split(line) for line in lines.splitlines()]
    return dict(word[1].split("=", 1) for word in words if word[0] == "export")
