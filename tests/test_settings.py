"""The typed model is the only reader of the platform's settings, and the documentation lists all of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from pydantic.fields import FieldInfo

from config.env import Env, variable
from supervise.instance import ROOT, InstanceError, load_instance
from supervise.orphans import MARKER, ROLE, STATE
from supervise.prepare import prepare_instance
from tests.syntax_trees import syntax_tree

APPS = [
    "platform",
    "namespaces",
    "credits",
    "workspaces",
    "sandboxes",
    "pages",
    "notifications",
    "assist",
    "cdn",
    "vmbackend",
]
# Set by the supervisor for each process, or by tests alone.
INTERNAL = {"short_state", "instance", "role", "supervised", "faults"}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for app in APPS:
        for path in (ROOT / app).rglob("*.py"):
            yield str(path.relative_to(ROOT)), syntax_tree(path)


def test_no_other_module_reads_the_environment() -> None:
    """A name as a whole string is how a variable is looked up; in messages it is a part of one."""
    names = re.compile(r"PLATFORM_[A-Z_]*")
    found = {
        (path, node.value)
        for path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and names.fullmatch(node.value)
    }
    marks = {("platform/supervise/orphans.py", name) for name in (MARKER, ROLE, STATE)}
    # The second one writes the settings of a machine that joins, before anything is installed there.
    prefixed = {(f"platform/{path}.py", "PLATFORM_") for path in ("config/env", "supervise/join_request")}
    assert found - marks == prefixed
    assert {MARKER, ROLE, STATE} == {variable("supervised"), variable("role"), variable("state")}


def documented() -> dict[str, tuple[str, str]]:
    """Default and meaning by the name of the variable, from the tables of docs/operations.md."""
    rows = re.findall(r"^\| (PLATFORM_\w+) \|(.*?)\| (.*) \|$", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)
    assert len(rows) == len({name for name, _, _ in rows})
    return {name: (default.strip(), meaning) for name, default, meaning in rows}


def shown_default(field: FieldInfo) -> str:
    if isinstance(field.json_schema_extra, dict):
        return str(field.json_schema_extra["default"])
    value: Any = field.default
    if value is None or value in ("", ()):
        return ""
    return (
        str(value).lower() if isinstance(value, bool) else f"`{value}`" if isinstance(value, str | Path) else str(value)
    )


def test_the_documentation_lists_every_setting_with_its_default() -> None:
    expected = {
        variable(name): shown_default(field) for name, field in Env.model_fields.items() if name not in INTERNAL
    }
    assert {name: default for name, (default, _) in documented().items()} == expected
    assert all(meaning for _, meaning in documented().values())


def test_another_process_reads_the_same_settings() -> None:
    given = {
        "PLATFORM_STATE": "/srv/two",
        "PLATFORM_SHORT_STATE": "/run/mvm-two",
        "PLATFORM_DEBUG": "yes",
        "PLATFORM_SUBNET": "10.130.0.0/20",
        "PLATFORM_BASE_URL": "https://vm.example.org",
        "PLATFORM_GUEST_DNS": "1.1.1.1, 9.9.9.9",
        "PLATFORM_REGISTRY_AUTH_FILE": "/srv/auth.json",
        "PLATFORM_VMHOST_THREADS": "7",
        "UNRELATED": "1",
    }
    settings = Env.from_environment(given)
    again = Env.from_environment(settings.variables())
    assert again == settings
    assert (settings.debug, settings.subnet, settings.guest_dns) == (
        True,
        IPv4Network("10.130.0.0/20"),
        ("1.1.1.1", "9.9.9.9"),
    )
    assert settings.redis_url == "unix:///run/mvm-two/run/redis.sock"
    assert "PLATFORM_API_THREADS" not in settings.variables()


def test_an_empty_address_is_an_unset_one() -> None:
    empty = dict.fromkeys(("PLATFORM_DATABASE_URL", "PLATFORM_REDIS_URL", "PLATFORM_LIBVIRT_URI"), "")
    settings = Env.from_environment({"PLATFORM_STATE": "/srv/two", **empty})
    assert settings.database_url == "postgresql://platform@/platform?host=/srv/two/postgres/data"
    assert settings.redis_url == "unix:///srv/two/run/redis.sock"
    assert settings.libvirt_uri == "qemu:///embed?root=/srv/two/libvirt"


@pytest.mark.parametrize(
    "name",
    ["STATE", "BIND", "BASE_URL", "PUBLIC_URL", "MACHINES_DIR", "CACHE_DIR", "KIT_DIR", "IMAGES_DIR", "HOST_NAME"],
)
def test_an_empty_place_or_name_is_an_unset_one(name: str) -> None:
    """It would be the current folder, or every address of the host."""
    given = {"PLATFORM_STATE": "/srv/two", f"PLATFORM_{name}": ""}
    expected = {} if name == "STATE" else {"PLATFORM_STATE": "/srv/two"}
    assert getattr(Env.from_environment(given), name.lower()) == getattr(Env.from_environment(expected), name.lower())


@pytest.mark.parametrize("name", [name for name, field in Env.model_fields.items() if field.annotation in (int, float)])
@pytest.mark.parametrize("value", [str(10**24), "-1", "1e400", "nan", ""])
def test_a_number_beyond_use_is_refused(name: str, value: str) -> None:
    """Of what is accepted, sums with dates, limits of processes and columns can be made."""
    with pytest.raises(ImproperlyConfigured, match=variable(name)):
        Env.from_environment({variable(name): value})


@pytest.mark.parametrize("value", ["host-2", "192.0.2.7/24", "2001:db8::1", "127.0.0.1", "0.0.0.0", "224.0.0.9"])
def test_an_address_that_no_other_host_reaches_is_refused(value: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="PLATFORM_HOST_ADDRESS"):
        Env.from_environment({"PLATFORM_HOST_ADDRESS": value})


def test_the_address_of_an_ipv6_host_is_in_brackets() -> None:
    settings = Env.from_environment({"PLATFORM_BIND": "::1", "PLATFORM_PORT": "8001"})
    assert (settings.base_url, settings.allowed_hosts[-1]) == ("http://[::1]:8001", "::1")


CONTRADICTIONS = [
    {"PLATFORM_API_WAITERS": "160"},
    {"PLATFORM_BASE_URL": "localhost:8000"},
    {"PLATFORM_BASE_URL": "http://["},
    {"PLATFORM_REDIS_URL": "garbage"},
    {"PLATFORM_SECRET_KEY": "short"},
    {"PLATFORM_STOP_GRACE_SECONDS": "290"},
    {"PLATFORM_DATABASE_URL": "sqlite:////srv/two/db.sqlite3"},
    {"PLATFORM_HOST_ADDRESS": "10.130.0.9", "PLATFORM_SUBNET": "10.130.0.0/20"},
]


@pytest.mark.parametrize("given", CONTRADICTIONS, ids=lambda given: next(iter(given)))
def test_make_up_refuses_settings_that_do_not_fit_together(tmp_path: Path, given: dict[str, str]) -> None:
    instance = load_instance(tmp_path / "a", 8001)
    with pytest.raises(InstanceError, match=next(iter(given))) as raised:
        prepare_instance(instance, instance.settings({"PLATFORM_VM_BACKEND": "fake", **given}))
    assert "Traceback" not in str(raised.value)
    assert not (instance.state / "credentials.env").exists()


def test_make_up_refuses_an_instance_that_has_lost_its_key(tmp_path: Path) -> None:
    """Its processes do not start without one, and what is hashed under another is of no use."""
    instance = load_instance(tmp_path / "a", 8001)
    (instance.state / "secrets.env").write_text("")
    with pytest.raises(InstanceError, match=r"restore secrets\.env"):
        prepare_instance(instance, instance.settings({"PLATFORM_VM_BACKEND": "fake"}))


def test_each_invalid_setting_is_one_line() -> None:
    with pytest.raises(ImproperlyConfigured) as raised:
        Env.from_environment({"PLATFORM_PORT": "http", "PLATFORM_ACCEL": "fast"})
    assert [line.partition(":")[0] for line in str(raised.value).splitlines()] == ["PLATFORM_PORT", "PLATFORM_ACCEL"]


def test_a_former_name_of_a_setting_is_refused_with_its_new_name() -> None:
    with pytest.raises(ImproperlyConfigured, match="PLATFORM_ORPHAN_REMOVALS_PER_HOUR"):
        Env.from_environment({"PLATFORM_LEFTOVER_REMOVALS_PER_HOUR": "0"})


def test_an_empty_fault_folder_is_none() -> None:
    assert Env.from_environment({"PLATFORM_FAULTS": ""}).faults is None
