"""Where an app is registered (docs/adding-a-resource.md): a list that lacks it is named, with the missing line."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from config.app_list import APPS, app_modules

ROOT = Path(settings.ROOT)
IMPORT_LINTER: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
CONTRACTS: dict[str, dict[str, Any]] = {contract["name"]: contract for contract in IMPORT_LINTER["contracts"]}


def missing(app: str, where: str, line: str) -> str:
    return f"{app} is not in {where} of pyproject.toml. Add the line: {line}"


@pytest.mark.parametrize("app", APPS)
def test_an_app_has_its_lines_in_pyproject(app: str) -> None:
    layers = CONTRACTS["Layers of the apps"]["layers"]
    line = f'"{app}",'
    assert app in IMPORT_LINTER["root_packages"], missing(app, "root_packages", line)
    assert any(app in layer.replace("|", " ").replace(":", " ").split() for layer in layers), missing(
        app, '"Layers of the apps"', line + " at its layer"
    )
    assert app in CONTRACTS["No import circles"]["ancestors"], missing(app, '"No import circles"', line)


def packages(module: str) -> set[str]:
    """The top-level packages with this module."""
    found = [path.parent.name for folder in (ROOT, ROOT / "platform") for path in folder.glob(f"*/{module}")]
    return set(found) - {"tests", "benchmarks"}


def test_no_app_is_left_out_of_the_list() -> None:
    with_config = packages("apps.py") - {"config"}
    assert with_config == set(APPS), "platform/config/app_list.py and the folders with an apps.py differ"


@pytest.mark.parametrize("package", sorted(packages("__init__.py") - set(APPS)))
def test_a_package_that_is_no_app_has_its_layer_too(package: str) -> None:
    assert package in IMPORT_LINTER["root_packages"], missing(package, "root_packages", f'"{package}",')


def test_two_apps_never_share_a_name_in_the_openapi_document_or_the_schedule() -> None:
    names = [name for app in app_modules("openapi_settings") for name in app.ENUM_NAME_OVERRIDES]
    assert sorted(names) == sorted(settings.SPECTACULAR_SETTINGS["ENUM_NAME_OVERRIDES"])
    from config.celery_settings import _env, beat_schedule

    entries = [name for app in app_modules("periodic_tasks") for name in app.schedule(_env)]
    assert sorted(entries) == sorted(beat_schedule)
