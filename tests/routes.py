"""Every route of the platform, as data. Each app with routes lists its own in `tests/<app>/routes.py`:

    ROUTES       every method of every route
    make_rows    (caller) -> for each placeholder of a row: one of this caller's account, in its default namespace
    ADDRESSED_BY for each placeholder that is not the row's primary key: the column
    VALUES       for each other placeholder: a value
    NOT_WALKED   paths with credentials of their own (the edge's secret, a send token): the app's tests check them
    DOCUMENTED   the lines of the specification that are built, as it spells them

All but ROUTES may be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from django.db.models import Model

from config.app_list import url_modules
from tests.callers import Caller
from tests.route import Route

# Routes without credentials: they show nothing of an account.
OPEN = {"healthz", "readyz", "openapi.json", "docs"}
MODULES: list[ModuleType] = [import_module(f"tests.{name.partition('.')[0]}.routes") for name in url_modules()]


def of_all(name: str) -> list[Any]:
    """What each module has under this name; modules without it are left out."""
    return [getattr(module, name) for module in MODULES if hasattr(module, name)]


def merged(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """One dictionary of all. Raises ValueError where two apps give one key different values."""
    found: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            if found.setdefault(key, value) != value:
                raise ValueError(f"Two apps have different values for {key!r}.")
    return found


ROUTES: list[Route] = [route for routes in of_all("ROUTES") for route in routes]
# With a token of its own: tests/common/test_metrics.py.
NOT_WALKED: set[str] = {"metrics"}.union(*of_all("NOT_WALKED"))
DOCUMENTED: list[str] = [line for text in of_all("DOCUMENTED") for line in text.strip().splitlines()]
VALUES: dict[str, str] = merged(of_all("VALUES"))
ADDRESSED_BY: dict[str, str] = merged(of_all("ADDRESSED_BY"))
MAKE_ROWS: list[Callable[[Caller], dict[str, Model]]] = of_all("make_rows")

every_route = pytest.mark.parametrize("route", ROUTES, ids=str)
