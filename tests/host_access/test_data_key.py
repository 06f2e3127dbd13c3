"""The data key: hosts read environments and workloads with it, and nothing that the secret key encrypts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.fernet import InvalidToken
from django.conf import settings

from common import secrets_at_rest
from supervise.files import read_env_file
from supervise.instance import ROOT, load_instance
from tests.callers import Caller
from tests.webhooks.outbox import subscribe
from tests.workspaces.rows import make_workspace
from webhooks.models import Subscription
from workspaces.models import Workspace

SECRET, DATA = "s" * 40, "d" * 40


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    use(monkeypatch, settings.SECRET_KEY, settings.SECRET_KEY)


def use(monkeypatch: pytest.MonkeyPatch, secret: str, data: str, *former: str) -> None:
    monkeypatch.setattr(settings, "SECRET_KEY", secret)
    monkeypatch.setattr(settings, "DATA_KEY", data)
    monkeypatch.setattr(settings, "DATA_KEY_FALLBACKS", [*former, secret])
    secrets_at_rest._fernet.cache_clear()
    secrets_at_rest._data_fernet.cache_clear()


@pytest.mark.django_db
def test_a_host_reads_an_environment_and_no_secret_of_a_webhook(api: Caller, keys: pytest.MonkeyPatch) -> None:
    use(keys, SECRET, DATA)
    make_workspace(api.account, env={"A": "1"}, workloads=[{"name": "x"}])
    subscribe(api.account)
    use(keys, "another, as of a host's process 0123456789", DATA)
    row = Workspace.objects.get()
    assert (row.env, row.workloads) == ({"A": "1"}, [{"name": "x"}])
    with pytest.raises(InvalidToken):
        Subscription.objects.get()


@pytest.mark.django_db
def test_a_replaced_key_reads_what_it_encrypted(api: Caller, keys: pytest.MonkeyPatch) -> None:
    use(keys, SECRET, DATA)
    make_workspace(api.account, env={"A": "1"})
    use(keys, SECRET, "e" * 40, DATA)
    assert Workspace.objects.get().env == {"A": "1"}
    use(keys, SECRET, "e" * 40)
    with pytest.raises(InvalidToken):
        Workspace.objects.get()


@pytest.mark.django_db
def test_what_was_encrypted_before_there_was_a_data_key_is_read(api: Caller, keys: pytest.MonkeyPatch) -> None:
    use(keys, SECRET, SECRET)
    make_workspace(api.account, env={"A": "1"})
    use(keys, SECRET, DATA)
    assert Workspace.objects.get().env == {"A": "1"}


def test_an_instance_gets_one_also_if_it_had_none(tmp_path: Path) -> None:
    state = tmp_path / "one"
    load_instance(state)
    made = read_env_file(state / "secrets.env")
    assert {"PLATFORM_SECRET_KEY", "PLATFORM_DATA_KEY"} == made.keys()
    assert made["PLATFORM_SECRET_KEY"] != made["PLATFORM_DATA_KEY"]
    (state / "secrets.env").write_text(f"PLATFORM_SECRET_KEY={SECRET}\n")
    first = load_instance(state).settings({})
    second = load_instance(state).settings({})
    assert first.secret_key == second.secret_key == SECRET
    assert len(first.data_key) > 40
    assert first.data_key == second.data_key


def test_a_machine_that_has_the_data_key_alone_gets_no_other(tmp_path: Path) -> None:
    load_instance(tmp_path / "one")
    (tmp_path / "one" / "secrets.env").write_text(f"PLATFORM_DATA_KEY={DATA}\n")
    given = load_instance(tmp_path / "one").settings({})
    assert (given.secret_key, given.data_key) == ("", DATA)


@pytest.mark.parametrize(
    ("role", "keys_given", "starts"),
    [("vmhost", ["DATA"], True), ("vmhost", [], False), ("api", ["DATA"], False), ("worker", ["DATA"], False)],
)
def test_vmhost_alone_starts_without_the_secret_key(role: str, keys_given: list[str], starts: bool) -> None:
    own = {name: value for name, value in os.environ.items() if not name.endswith("_KEY")}
    own |= {"PLATFORM_ROLE": role, "DJANGO_SETTINGS_MODULE": "config.settings"}
    own |= {f"PLATFORM_{name}_KEY": DATA for name in keys_given} | {"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
    program = "from django.conf import settings; print(len(settings.SECRET_KEY), settings.DATA_KEY)"
    done = subprocess.run([sys.executable, "-c", program], env=own, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is starts
    assert done.stdout.strip() == (f"64 {DATA}" if starts else "")
