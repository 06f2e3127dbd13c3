"""Names in the code: each says of what it is, and has one meaning (CONTRIBUTING.md, Glossary)."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from django.conf import settings

from tests.syntax_trees import syntax_tree

ROOT = Path(settings.ROOT)
OTHERS = {"benchmarks", "docs", "scripts", "tests", "var"}


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Verbs that say nothing without an object. `reconcile` says nothing of rows, `reconcile_rows_and_machines` does.
VERBS = words(
    """
    accept add admit announce answer append apply ask attach begin bind build call change check clean clear
    close collect compact compare complete compute confine copy count create cut decide delete destroy detach
    dial drain drop end ensure enter evict exclude execute exit expire export fail feed fetch fill find finish
    flush follow forget free freshen get give grow guard handle hold import insert install invalidate issue keep
    kill leave let limit list listen load lock look lose make manage mark match matches measure merge mint move
    note notify observe open pack parse pause ping place poll prepare print publish pull purge push put raise
    reach read rebuild receive reconcile record refresh refuse register reinstall relaunch release remove rename
    render renew replace reply report require reserve reset resize resolve respond responds restart restore
    resume resync retry return ring rotate run save say scan schedule seed select send serve set settle shrink
    shut sleep spread start stop store succeed suspend sweep take tell test told touch translate trim try unpack
    unregister update upload use verify wait wake walk watch work write
    """
)
# Module -> its functions that are verbs all the same.
ALLOWED = {
    # Named by the commands of the Makefile.
    "supervise.commands": {"run", "clean", "manage"},
    # Named by what they are given: a response's body.
    "common.responses": {"respond"},
    # A remote procedure call; the module says of what.
    "workspaces.host_rpc": {"call", "reply"},
    # Imported by a migration.
    "workspaces.images.seed": {"seed"},
}
# Module of any app -> what config/app_list.py reads of it.
OF_EVERY_APP = {"periodic_tasks": {"schedule"}}
# Modules of former names: what they hold is named by the glossary's terms now.
FORMER_MODULES = words(
    """
    admission answers attend bell bodies door doorbell ends exits freshen gate hostdown hostside incoming kept
    lost pin rebuild remote rights rung stock told unread uses
    """
)
# Django wants this name of every management command.
REPEATED = {"Command"}


def modules() -> Iterator[tuple[str, Path]]:
    """Dotted name and path of each module of the platform but migrations."""
    for folder in sorted(ROOT.iterdir()):
        if folder.is_dir() and folder.name[0] != "." and folder.name not in OTHERS:
            base = folder if folder.name == "platform" else ROOT
            for path in sorted(folder.rglob("*.py")):
                if "migrations" not in path.parts:
                    yield ".".join(path.relative_to(base).with_suffix("").parts), path


MODULES = dict(modules())


@cache
def definitions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Public functions and classes at the top level of a module."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node for node in syntax_tree(path).body if isinstance(node, kinds) and node.name[0] != "_"]


def bare_verbs(name: str, path: Path) -> set[str]:
    functions = {node.name for node in definitions(path) if not isinstance(node, ast.ClassDef)}
    return (functions & VERBS) - ALLOWED.get(name, set()) - OF_EVERY_APP.get(name.rpartition(".")[2], set())


def test_public_functions_say_of_what() -> None:
    found = {name: verbs for name, path in MODULES.items() if (verbs := bare_verbs(name, path))}
    assert found == {}, "name the object, too: `take_events`, not `take`"


def test_exceptions_are_still_needed() -> None:
    for name, verbs in ALLOWED.items():
        assert verbs <= {node.name for node in definitions(MODULES[name])}, name


def test_no_module_has_a_former_name() -> None:
    assert [name for name in MODULES if name.rpartition(".")[2] in FORMER_MODULES] == []


def test_a_class_name_has_one_meaning_in_an_app() -> None:
    places = defaultdict(list)
    for name, path in MODULES.items():
        for node in definitions(path):
            if isinstance(node, ast.ClassDef) and node.name not in REPEATED:
                places[name.partition(".")[0], node.name].append(name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def is_model(node: ast.ClassDef) -> bool:
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    return bool(
        bases & {"Model", "TextChoices", "IntegerChoices", "Enum", "StrEnum", "IntEnum", "NamedTuple", "BaseModel"}
    )


@pytest.mark.parametrize("app", sorted({name.partition(".")[0] for name in MODULES}))
def test_models_and_enums_say_what_they_are(app: str) -> None:
    found = [
        f"{name}.{node.name}"
        for name, path in MODULES.items()
        if name.partition(".")[0] == app
        for node in definitions(path)
        if isinstance(node, ast.ClassDef) and is_model(node) and not ast.get_docstring(node)
    ]
    assert found == []
