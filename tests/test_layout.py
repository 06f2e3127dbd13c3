"""How the project is laid out: folders, file sizes, migrations, the OpenAPI document, the admin."""

from __future__ import annotations

import json
import platform
import re
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.contrib import admin
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from drf_spectacular.generators import SchemaGenerator

from accounts.models import Account, Credential, Plan
from config import api_document
from tests.callers import Caller
from tests.routes import ROUTES
from tests.run_order import LONG
from tests.staff.pages import confirm
from tests.workspaces.rows import make_host, make_workspace
from tests.world import assert_error
from workspaces.models import Activity, Operation, Workspace

pytestmark = pytest.mark.django_db
ROOT = Path(settings.ROOT)
# Folders without code of the platform.
OTHERS = {"benchmarks", "docs", "scripts", "tests", "var"}
MOST_LINES = 350


def test_platform_is_a_folder_and_no_package() -> None:
    """A module or an `__init__.py` directly in it would hide one of the standard library or of a dependency."""
    assert not [path.name for path in (ROOT / "platform").iterdir() if path.suffix == ".py"]
    assert Path(platform.__file__).parent == Path(sysconfig.get_paths()["stdlib"])
    assert platform.python_version().startswith("3.")


def sources() -> list[Path]:
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "." and path.name not in OTHERS]
    found = [path for folder in folders for path in folder.rglob("*.py")]
    return [path for path in found if "migrations" not in path.parts]


def test_no_source_file_is_too_long() -> None:
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources()}
    assert {name: lines for name, lines in long.items() if lines > MOST_LINES} == {}


def test_migrations_are_complete(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        call_command("makemigrations", check=True, dry_run=True)
    except SystemExit:
        pytest.fail(f"models without a migration: {capsys.readouterr().out}")


def test_the_system_checks_find_nothing() -> None:
    call_command("check", fail_level="WARNING")


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("openapi") / "openapi.yaml"
    call_command("spectacular", validate=True, fail_on_warn=True, file=str(path))
    loaded: dict[str, Any] = yaml.safe_load(path.read_text())
    return loaded


def test_the_openapi_document_is_valid_and_has_every_route(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    listed = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert {(route.method, f"/{route.path}") for route in ROUTES} <= listed


def test_every_operation_says_what_it_does_and_answers(document: dict[str, Any]) -> None:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if path == "/openapi.json":
                continue
            assert operation.get("description"), f"{method} {path}"
            assert [code for code in operation["responses"] if code.startswith("2")], f"{method} {path}"


def test_the_document_and_its_page_are_served(document: dict[str, Any]) -> None:
    answer = Client().get("/openapi.json")
    assert answer.status_code == 200
    assert answer["Content-Type"] == "application/vnd.oai.openapi+json"
    assert answer.json() == json.loads(json.dumps(document))
    assert Client().get("/docs").status_code == 200
    assert_error(Client().post("/openapi.json"), 405, "method_not_allowed")


def test_the_document_is_made_once_however_many_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    make = SchemaGenerator.get_schema

    def counting(generator: SchemaGenerator, *args: Any, **options: Any) -> Any:
        made.append(generator)
        return make(generator, *args, **options)

    monkeypatch.setattr(SchemaGenerator, "get_schema", counting)
    api_document._document.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: Client().get(f"/openapi.json?version={number}"), range(16)))
    assert {(answer.status_code, answer.content) for answer in answers} == {(200, answers[0].content)}
    assert len(made) == 1


# The admin


def test_the_admin_is_closed_to_others() -> None:
    answer = Client().get("/admin/")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/login/?next=/admin/")
    assert Client().get("/admin/login/").status_code == 200


@pytest.mark.parametrize("model", list(admin.site._registry), ids=lambda model: model.__name__)
def test_every_list_of_the_admin_renders(staff: Client, api: Caller, model: Any) -> None:
    row = make_workspace(api.account, host=make_host(), ip="10.200.0.2")
    Operation.objects.create(
        workspace=row, kind="start", queue="host.local", deadline_at=row.created_at, state="failed"
    )
    Activity.objects.create(account=api.account, workspace_id=row.pk, action="started")
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    assert staff.get("/admin/").status_code == 200
    page = staff.get(reverse(f"{name}_changelist"))
    assert page.status_code == 200
    if model.objects.exists():
        one = model.objects.order_by("pk").first()
        assert staff.get(reverse(f"{name}_change", args=[one.pk])).status_code == 200
    searched = staff.get(reverse(f"{name}_changelist"), {"q": "x"})
    assert searched.status_code == 200


def test_a_plan_is_made_and_changed(staff: Client) -> None:
    sizes = ["cpus", "memory_mb", "disk_size_mb"]
    form = {f"{prefix}{size}": 2 for prefix in ("", "pool_", "running_") for size in sizes}
    form |= {"assist_calls_per_day": 5, "max_snapshots": 4}
    answer = staff.post("/admin/accounts/plan/add/", {"code": "own", "label": "Own", "max_workspaces": 3, **form})
    assert answer.status_code == 302, answer.content
    answer = staff.post(
        "/admin/accounts/plan/own/change/",
        {"code": "own", "label": "New", "max_workspaces": 4, "reason": "why", **form},
    )
    assert answer.status_code == 302
    assert (Plan.objects.get(code="own").label, Plan.objects.get(code="own").max_workspaces) == ("New", 4)


def secret_of(answer: Any) -> tuple[str, str]:
    text = answer.content.decode()
    return re.search(r"cli_[a-z2-7]+", text).group(0), re.search(r"sec_[\w-]+", text).group(0)  # type: ignore[union-attr]


def test_an_account_is_made_and_its_secret_is_shown_once(staff: Client) -> None:
    answer = staff.post("/admin/accounts/account/add/", {"name": "acme", "plan": "pro", "is_active": "on"}, follow=True)
    client_id, secret = secret_of(answer)
    pair = {"X-Client-ID": client_id, "X-Client-Secret": secret}
    assert Client().get("/workspace", headers=pair).json()["success"] is True
    account = Account.objects.get(name="acme")
    assert account.namespaces.get().is_default
    pages = ["/admin/", "/admin/accounts/account/", "/admin/accounts/credential/"]
    pages += [f"/admin/accounts/credential/{account.credentials.get().pk}/change/"]
    for page in pages:
        shown = staff.get(page)
        assert shown.status_code == 200
        assert secret not in shown.content.decode()


def test_a_credential_is_made_and_its_secret_is_shown_once(staff: Client, api: Caller) -> None:
    form = {"account": api.account.pk, "name": "by staff", "scope": "billing"}
    answer = staff.post("/admin/accounts/credential/add/", form, follow=True)
    client_id, secret = secret_of(answer)
    made = Credential.objects.get(client_id=client_id)
    assert (made.account, made.name, made.scope) == (api.account, "by staff", "billing")
    pair = {"X-Client-ID": client_id, "X-Client-Secret": secret}
    assert Client().get("/workspace", headers=pair).json()["code"] == "forbidden"
    change = f"/admin/accounts/credential/{made.pk}/change/"
    assert secret not in staff.get(change).content.decode()
    assert staff.post(change, {"name": "renamed", "reason": "why"}, follow=True).status_code == 200
    made.refresh_from_db()
    assert (made.name, made.scope, made.client_id) == ("renamed", "billing", client_id)


def test_an_account_with_workspaces_is_not_deleted_by_accident(staff: Client, api: Caller) -> None:
    make_workspace(api.account)
    confirm(staff, "accounts/account", "remove", api.account.pk, reason="why")
    assert Account.objects.filter(pk=api.account.pk).exists()


@pytest.mark.parametrize("action", ["start", "stop", "remove"])
def test_refused_actions_show_the_reason(staff: Client, api: Caller, action: str) -> None:
    row = make_workspace(api.account, status="stopped" if action == "start" else "running")
    answer = confirm(staff, "workspaces/workspace", action, row.pk, reason="why")
    if action == "remove":  # it was never placed, so it goes at once
        assert not Workspace.objects.exists()
    else:
        assert "host" in answer.content.decode()


def test_every_file_that_begins_first_exists_and_is_named_once() -> None:
    assert [name for name in LONG if not (ROOT / "tests" / name).is_file()] == []
    assert len(set(LONG)) == len(LONG)
