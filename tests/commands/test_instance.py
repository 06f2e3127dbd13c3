"""What an instance derives from its state folder and port."""

from __future__ import annotations

import ipaddress
import stat
from pathlib import Path

import pytest

from supervise import subnets as module
from supervise.instance import InstanceError, load_instance
from supervise.subnets import SUBNETS


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
