"""What each start does to the database and to the files made of it: by several hosts at once, and after a death."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import override_settings

from accounts.models import Account, Credential
from supervise import database
from supervise.files import read_env_file
from supervise.instance import Instance, load_instance
from tests.database_server import new_database
from tests.vm.instances import TestInstance, new_instance


@pytest.fixture
def instances(tmp_path: Path) -> tuple[Instance, Instance]:
    """Of two hosts with one database."""
    return load_instance(tmp_path / "a", 8001), load_instance(tmp_path / "b", 8001)


def password_of(instance: Instance) -> str:
    return read_env_file(instance.credentials_file)["ADMIN_PASSWORD"]


def is_valid(password: str) -> bool:
    return bool(get_user_model().objects.get(username="admin").check_password(password))


@pytest.mark.django_db
def test_a_second_host_leaves_the_admins_password_as_it_is(instances: tuple[Instance, Instance]) -> None:
    first, second = instances
    database._write_credentials(first)
    database._write_credentials(second)
    database._write_credentials(first)
    assert is_valid(password_of(first))
    assert password_of(second) == ""


@pytest.mark.django_db
def test_a_death_before_the_admin_is_made_loses_no_password(
    instances: tuple[Instance, Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(database, "_ensure_admin", die)
        with pytest.raises(KeyboardInterrupt):
            database._write_credentials(instances[0])
    database._write_credentials(instances[0])
    assert is_valid(password_of(instances[0]))


@pytest.mark.django_db
def test_what_the_demo_made_stays_deleted_where_there_is_to_be_none(
    instances: tuple[Instance, Instance], settings: Any
) -> None:
    first, second = instances
    database._write_credentials(first)
    written = read_env_file(first.credentials_file)
    Credential.objects.all().delete()
    Account.objects.filter(name="demo").delete()
    get_user_model().objects.all().delete()
    settings.ENV = settings.ENV.model_copy(update={"demo": False})
    for instance in instances:
        database._write_credentials(instance)
    assert not Account.objects.exists()
    assert not get_user_model().objects.exists()
    assert read_env_file(first.credentials_file) == written
    assert set(read_env_file(second.credentials_file)) == {"BASE_URL", "IMAGE"}


def test_a_static_file_that_was_cut_off_is_copied_again(tmp_path: Path) -> None:
    with override_settings(STATIC_ROOT=str(tmp_path / "static")):
        call_command("collectstatic", interactive=False, verbosity=0)
        file = max((tmp_path / "static").rglob("*.js"), key=lambda path: path.stat().st_size)
        whole = file.read_bytes()
        file.write_bytes(whole[:100])
        database._collect_static()
    assert file.read_bytes() == whole


@pytest.fixture
def hosts() -> Iterator[list[TestInstance]]:
    with new_database() as url:
        shared = {"PLATFORM_DATABASE_URL": url, "PLATFORM_SECRET_KEY": "x" * 50, "PLATFORM_VM_BACKEND": "fake"}
        with (
            new_instance(images=False, PLATFORM_HOST_NAME="one", **shared) as one,
            new_instance(images=False, PLATFORM_HOST_NAME="two", **shared) as two,
        ):
            yield [one, two]


def test_two_hosts_may_prepare_one_database_at_once(hosts: list[TestInstance]) -> None:
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda host: host.command("prepare"), hosts))
    assert [(each.returncode, each.stderr[-500:]) for each in done] == [(0, ""), (0, "")]
