"""Workspace rows are written by `rows` and `transitions` alone; and what the functions of `rows` promise."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.db.models import Q

import workspaces
from common.errors import NotFound
from tests.callers import Caller
from tests.syntax_trees import syntax_tree
from tests.workspaces.rows import make_workspace
from vmbackend.driver import Event, EventKind
from workspaces import rows
from workspaces.host.machine_events import handle_machine_event
from workspaces.models import Workspace
from workspaces.states import Status

PACKAGE = Path(workspaces.__file__).parent
WRITERS = {PACKAGE / "rows.py", PACKAGE / "transitions.py"}
WRITES = {
    "update", "create", "get_or_create", "update_or_create", "bulk_create", "bulk_update", "delete", "save",
    "select_for_update",
}  # fmt: skip
INSTANCES = {"workspace", "row"}


def starts_with(node: ast.expr) -> str:
    """The name that a chain of attributes and calls begins with."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def writes_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Calls that write rows of Workspace: on its manager, on a queryset of it under another name, on an instance."""
    querysets = {"Workspace"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and starts_with(node.value) == "Workspace":
            querysets |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in WRITES:
            continue
        direct_instance = isinstance(node.func.value, ast.Name) and node.func.value.id in INSTANCES
        if (direct_instance and node.func.attr in ("save", "delete")) or starts_with(node.func) in querysets:
            yield node.lineno, ast.unparse(node)


def test_no_other_module_writes_workspace_rows() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path not in WRITERS and "migrations" not in path.parts:
            writes = writes_of(syntax_tree(path))
            found += [f"{path.relative_to(PACKAGE)}:{line}: {code}" for line, code in writes]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "Workspace.objects.filter(pk=1).update(name='x')",
        "held = Workspace.objects.filter(pk=1)\nheld.update(name='x')",
        "Workspace.objects.select_for_update().get(pk=1)",
        "Workspace.objects.create()",
        "workspace.save(update_fields=['name'])",
    ],
)
def test_the_search_finds_each_way_of_writing(code: str) -> None:
    assert list(writes_of(ast.parse(code)))


@pytest.mark.django_db
def test_a_conditional_write_changes_nothing_where_the_row_has_changed(api: Caller) -> None:
    row = make_workspace(api.account)
    stale = Workspace.objects.get(pk=row.pk)
    assert rows.update_unless_changed(row, ("name",), name="first")
    assert not rows.update_unless_changed(stale, ("name",), name="second", type="changed")
    assert not rows.update_if(row, Q(status=Status.STOPPED), name="third")
    stored = Workspace.objects.get(pk=row.pk)
    assert (stored.name, stored.type, row.name) == ("first", "", "first")
    assert stale.name not in ("first", "second")


@pytest.mark.django_db
def test_a_deleted_row_is_not_written(api: Caller) -> None:
    row = make_workspace(api.account)
    gone = Workspace.objects.get(pk=row.pk)
    rows.delete_row(row)
    assert not rows.update_row(gone, name="x")
    with transaction.atomic():
        rows.lock_row(gone)
        assert rows.find_and_lock(gone.pk) is None
        for refused in (lambda: rows.lock_current(gone), lambda: rows.lock_column(gone, "metadata")):
            with pytest.raises(NotFound):
                refused()


@pytest.mark.django_db
def test_a_workspace_that_is_being_deleted_takes_no_changes_of_its_owner(api: Caller) -> None:
    row = make_workspace(api.account, status=Status.DELETING, ready=False)
    with pytest.raises(NotFound):
        rows.update_columns(row, name="x")
    assert rows.update_row(row, error_code="x")


@pytest.mark.django_db
@pytest.mark.parametrize("fields", [None, ["status", "name"]])
def test_a_row_is_locked_and_read_by_one_statement(
    api: Caller, django_assert_num_queries: Any, fields: list[str] | None
) -> None:
    row = make_workspace(api.account)
    Workspace.objects.filter(pk=row.pk).update(name="renamed")
    with transaction.atomic(), django_assert_num_queries(1):
        rows.lock_current(row, fields)
    assert row.name == "renamed"


@pytest.mark.django_db
def test_a_deleted_row_is_not_locked(api: Caller) -> None:
    row = make_workspace(api.account)
    Workspace.objects.all().delete()
    with transaction.atomic():
        rows.lock_row(row)
        with pytest.raises(Workspace.DoesNotExist):
            rows.lock_and_read(row)
        with pytest.raises(NotFound):
            rows.lock_current(row)


@pytest.mark.django_db
@pytest.mark.parametrize("kind", sorted(set(EventKind) - {EventKind.STOPPED}))
def test_an_event_that_ends_no_machine_asks_nothing(
    api: Caller, django_assert_num_queries: Any, kind: EventKind
) -> None:
    row = make_workspace(api.account)
    with django_assert_num_queries(0):
        handle_machine_event(Event(row.pk, kind), None, "local")  # type: ignore[arg-type]
