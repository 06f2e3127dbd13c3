"""What `make client` writes is current, and the client has every documented route."""

from __future__ import annotations

import inspect
import re
import shutil
from itertools import chain
from pathlib import Path

import pytest

from clients.python.generator.modules import PACKAGE, generated_modules
from clients.python.generator.synchronous import write_synchronous_client
from clients.python.generator.table import MethodGroup, read_table
from microvm import AsyncMicrovm, Microvm
from tests.openapi import document
from tests.routes import DOCUMENTED

GROUPS = read_table()
IN_A_RUNTIME = {f"runtime_{name}": name for name in ("files", "tasks", "terminals", "watchers")}
IN_A_SANDBOX = {"sandbox_files": "files", "sandbox_git": "git"}
# Documented, but no routes of the account: the list of files in a sandbox. And what is added for existing clients.
BESIDE = {"POST {sandbox_url}/files/list", "GET /workspace/estimate"}


def group_object(group: MethodGroup, client: Microvm | AsyncMicrovm) -> object:
    if group.name in IN_A_SANDBOX:
        return getattr(client.sandboxes.open("http://test/s/one", "token"), IN_A_SANDBOX[group.name])
    if group.name in IN_A_RUNTIME:
        return getattr(client.runtime_access.open("http://test/r", "token"), IN_A_RUNTIME[group.name])
    return getattr(client, group.name)


def test_the_generated_modules_are_current() -> None:
    made = generated_modules(document())
    assert [str(path) for path, text in made.items() if (PACKAGE / path).read_text() != text] == [], "run `make client`"
    folders = [PACKAGE / name for name in ("aio/routes", "types")]
    present = {path.relative_to(PACKAGE) for path in chain(*(folder.glob("*.py") for folder in folders))}
    assert {path for path in present if path.name != "__init__.py"} == made.keys()


def test_the_synchronous_client_is_written_from_the_asynchronous_one(tmp_path: Path) -> None:
    package = tmp_path / "microvm"
    shutil.copytree(PACKAGE, package)
    (package / "sync/gone.py").write_text("")
    (package / "sync/client.py").write_text("changed by hand")
    (package / "sync/routes/quota.py").unlink()
    write_synchronous_client(package)
    texts = {path.relative_to(package): path.read_text() for path in package.rglob("*.py")}
    assert texts == {path.relative_to(PACKAGE): path.read_text() for path in PACKAGE.rglob("*.py")}
    written = [text for path, text in texts.items() if path.parts[0] == "sync"]
    assert len(written) == sum(path.parts[0] == "aio" for path in texts) > 40
    assert not re.search(r"\basync\b|\bawait\b|\bAsync[A-Z]", "".join(written))


def test_every_documented_route_has_a_method() -> None:
    shapes = {f"{method.verb} {re.sub('{[^}]+}', '{}', method.path)}" for group in GROUPS for method in group.methods}
    documented = {" ".join(line.split()[:2]) for line in DOCUMENTED} | BESIDE
    documented = {re.sub(r":[a-zA-Z]+|{[^}]+}", "{}", line) for line in documented}
    assert len(documented) > 100
    streams = {shape.replace("stream/{}", f"stream/{source}") for shape in shapes for source in ("boot", "cmd")}
    assert documented - shapes - streams == set()


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_both_clients_have_the_methods_of_a_group(group: MethodGroup) -> None:
    clients = [
        Microvm("http://test", client_id="id", client_secret="secret"),
        AsyncMicrovm("http://test", client_id="id", client_secret="secret"),
    ]
    for method in group.methods:
        signatures = []
        for client in clients:
            function = getattr(group_object(group, client), method.name)
            assert inspect.getdoc(function), method.name
            signatures.append([(each.name, each.kind) for each in inspect.signature(function).parameters.values()])
        assert signatures[0] == signatures[1], method.name


def test_a_line_of_the_table_is_read() -> None:
    (group,) = read_table("[things] ThingRoutes: Things.\nget GET /thing/{thing} data.inner long bearer=key\n")
    (method,) = group.methods
    assert (method.shape, method.placeholders, method.bearer) == ("/thing/{}", ["thing"], "key")
    assert "long" in method.flags


def test_the_package_has_no_dependency_but_its_own() -> None:
    imported = set()
    extras = {PACKAGE / "cli", PACKAGE / "mcp_server"}
    for path in Path(PACKAGE).rglob("*.py"):
        if not extras & set(path.parents):
            imported |= set(re.findall(r"^(?:from|import) (\w+)", path.read_text(), re.M))
    assert {"httpx", "microvm"} <= imported
    assert not imported & {
        "django",
        "rest_framework",
        "websockets",
        "typer",
        "rich",
        "mcp",
        "common",
        "config",
        "tests",
    }


def test_the_client_imports_no_extra() -> None:
    for path in (each for folder in ("aio", "sync", "types") for each in (PACKAGE / folder).rglob("*.py")):
        assert not re.search(r"microvm\.(cli|mcp_server)", path.read_text()), path
