"""The project's Django apps: the one list that settings, URLs, tests and checks read.

An app that is listed here is installed, its models have migrations and its tasks are found. Modules with one of these
names are picked up if the app has them:

    urls (or api.urls)    its routes, included at the root in the order of this list
    openapi_settings      its part of the API's description: ENUM_NAME_OVERRIDES, GROUPS
    periodic_tasks        its part of the beat schedule: `schedule(env)`
    doctor                its lines of `make doctor`: `doctor_lines()`
    gauges                its part of `/metrics`: `gauges()`
    process               its part in the workers of a role: `PROCESS`, a `common.work.processes.WorkerProcess`
    counted               the counters and histograms of it, which are declared there
    tests/<app>/routes    its entries of the route walk (tests/routes.py)

The layer of an app is in pyproject.toml (`[tool.importlinter]`).
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

# The routes of an app are tried in this order, one by one: the most frequent requests first, then by name. Sandboxes
# have few routes beside those of workspaces.
APPS = [
    "sandboxes",
    "workspaces",
    "accounts",
    "assist",
    "cdn",
    "certificates",
    "console",
    "credits",
    "domains",
    "edge",
    "hosts",
    "namespaces",
    "notifications",
    "pages",
    "staff",
    "vmbackend",
    "webhooks",
]


def app_modules(name: str) -> list[ModuleType]:
    """Return each app's module of this name, imported, in the order of APPS; apps without one are left out.

    Names of settings modules (`openapi_settings`, `periodic_tasks`) are imported before Django's apps are ready, so
    neither they nor an app's `__init__` may import models.
    """
    return [import_module(f"{app}.{name}") for app in APPS if find_spec(f"{app}.{name}") is not None]


def url_modules() -> list[str]:
    """Return each app's URL configuration, as `include` takes it: `<app>.urls`, or `<app>.api.urls`."""
    candidates = [f"{app}.{module}" for app in APPS for module in ("urls", "api.urls")]
    return [name for name in candidates if _exists(name)]


def _exists(name: str) -> bool:
    """Return whether the module exists; its package is imported, the module is not."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # it has no such package
        return False
