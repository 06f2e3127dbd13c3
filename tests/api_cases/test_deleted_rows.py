"""Another request deletes the row of a path between any two statements of a request that writes.

Outside of the request's own transaction, whose locks are tested where they are taken.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from django.conf import LazySettings
from django.db import connection, transaction
from django.db.models import Model

from config.api_examples_reader import all_examples, with_ids
from sandboxes.models import Sandbox
from tests.assist.conftest import configured
from tests.route import Route
from tests.routes import ROUTES
from tests.world import World
from workspaces.models import Workspace
from workspaces.rows import delete_row

pytestmark = pytest.mark.django_db
# Namespaces are deleted under the account's lock: tests/namespaces.
ADDRESSED = [route for route in ROUTES if route.method != "GET" and re.search(r"{(?!namespace)", route.path)]


class Statements:
    """Counts those that a request sends outside of its transactions, and deletes the row before one of them."""

    def __init__(self, row: Model, number: int) -> None:
        self.row, self.left = row, number
        self._depth = len(connection.savepoint_ids)

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        # What ends a transaction is still within it.
        if len(connection.savepoint_ids) == self._depth and not sql.startswith(("RELEASE", "ROLLBACK")):
            self.left -= 1
            if self.left == 0:
                _delete(self.row)
        return execute(sql, params, many, context)


def _delete(row: Model) -> None:
    """As services do; the object stays as it is."""
    if isinstance(row, Workspace | Sandbox):
        delete_row(Workspace.objects.get(pk=row.pk if isinstance(row, Workspace) else row.workspace_id))
    else:
        type(row)._default_manager.filter(pk=row.pk).delete()


def row_of(route: Route, world: World) -> Model:
    return next(row for name, row in world.rows.items() if f"{{{name}}}" in route.path)


def sent(route: Route, world: World) -> Any:
    """The answer to the document's example. One that the document has not is an error (`world`)."""
    example = with_ids(all_examples().get(f"{route.method} /{route.path}", {}), world.ids)
    query = urlencode(example.get("query", {}))
    data = json.dumps(example["body"]) if "body" in example else ""
    headers = {**world.owner.headers, **example.get("headers", {})}
    path = f"{route.at(**world.ids)}?{query}"
    return world.owner.client.generic(route.method, path, data, content_type="application/json", headers=headers)


@pytest.mark.parametrize("route", ADDRESSED, ids=str)
def test_a_row_that_is_deleted_between_two_statements_stays_so_and_the_answer_is_documented(
    world: World, route: Route, settings: LazySettings
) -> None:
    configured(settings, domain_verification=False, deploy_wait_seconds=0, power_seconds=0)
    row = row_of(route, world)
    number, deleted = 0, True
    while deleted:
        number += 1
        with transaction.atomic():
            seen = Statements(row, number)
            with connection.execute_wrapper(seen):
                answer = sent(route, world)
            deleted = seen.left <= 0
            assert answer.status_code != 500, (number, answer.content)
            assert not deleted or not type(row)._default_manager.filter(pk=row.pk).exists()
            transaction.set_rollback(True)
    assert number > 2
