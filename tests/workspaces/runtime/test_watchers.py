"""Watchers of a workspace by its runtime: the routes, with a hold of this host as its guest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.vmbackend.hold_guests import Guests
from tests.vmbackend.local_dropbear import missing_requirement
from tests.workspaces.runtime.conftest import Holder, assert_wrong_field
from tests.world import assert_error

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools"),
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree/one/two").mkdir(parents=True)
    (tmp_path / "tree/left").mkdir()
    return tmp_path / "tree"


def create(holder: Holder, body: Any) -> Any:
    return holder.send("POST", "/watchers", data=json.dumps(body), content_type="application/json")


def created(holder: Holder, body: Any) -> Any:
    answer = create(holder, body)
    assert answer.status_code == 200, answer.content
    return answer.json()["watcher"]


@pytest.mark.parametrize(("folder", "patterns"), [("path", "excludes"), ("root", "exclude")])
def test_a_watcher_is_made_listed_and_removed(
    holder: Holder, guests: Guests, tree: Path, folder: str, patterns: str
) -> None:
    made = created(holder, {folder: str(tree), patterns: ["/left", "*.o"]})
    assert made == {
        "id": made["id"], "root": str(tree), "dir_count": 3, "excludes": ["/left", "*.o"], "active": True,
    }  # fmt: skip
    assert made["id"].isdigit()
    assert holder.get("/watchers").json() == {"success": True, "watchers": [made]}
    assert holder.get(f"/watchers/{made['id']}").json() == {"success": True, "watcher": made}
    answer = holder.send("DELETE", f"/watchers/{made['id']}")
    assert (answer.status_code, answer.json()) == (200, {"success": True, "watcher_id": made["id"]})
    assert holder.get("/watchers").json()["watchers"] == []
    assert_error(holder.get(f"/watchers/{made['id']}"), 404, "not_found")
    assert_error(holder.send("DELETE", f"/watchers/{made['id']}"), 404, "not_found")


def test_a_workspace_has_eight(holder: Holder, guests: Guests, tree: Path) -> None:
    made = [created(holder, {"path": str(tree)}) for _ in range(8)]
    assert_error(create(holder, {"path": str(tree)}), 409, "watch_limit")
    holder.send("DELETE", f"/watchers/{made[3]['id']}")
    assert len({each["id"] for each in (*made, created(holder, {"path": str(tree)}))}) == 9


def test_one_whose_folder_is_gone_is_not_active_and_takes_no_place(holder: Holder, guests: Guests, tree: Path) -> None:
    made = [created(holder, {"path": str(tree / "one/two")}) for _ in range(8)]
    (tree / "one/two").rmdir()
    for _ in range(200):
        if not any(each["active"] for each in holder.get("/watchers").json()["watchers"]):
            break
    assert not holder.get(f"/watchers/{made[0]['id']}").json()["watcher"]["active"]
    assert created(holder, {"path": str(tree)})["active"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "path"),
        ({"path": "/a", "root": "/b"}, "path"),
        ({"path": "a"}, "path"),
        ({"path": "/a\0"}, "path"),
        ({"path": "/a", "excludes": ["\n"]}, "excludes"),
        ({"path": "/a", "excludes": ["x"] * 101}, "excludes"),
        ({"path": "/a", "exclude": ["x"], "excludes": ["y"]}, "excludes"),
    ],
)
def test_a_wrong_field_is_named(holder: Holder, body: Any, field: str) -> None:
    assert_wrong_field(create(holder, body), field)


def test_what_is_no_folder_cannot_be_watched(holder: Holder, guests: Guests, tree: Path) -> None:
    (tree / "file").write_text("")
    for path in (tree / "none", tree / "file"):
        assert_error(create(holder, {"path": str(path)}), 400, "path_invalid")
    patterns = {"excludes": [f"{number:0990}" for number in range(100)]}
    assert_error(create(holder, {"path": str(tree), **patterns}), 400, "path_invalid")
    assert holder.get("/watchers").json()["watchers"] == []


@pytest.mark.parametrize("id", ["0", "x", "-1", "99999999999", "4294967296"])
def test_what_no_watcher_has_is_not_found(holder: Holder, guests: Guests, id: str) -> None:
    assert_error(holder.get(f"/watchers/{id}"), 404, "not_found")
    assert_error(holder.send("DELETE", f"/watchers/{id}"), 404, "not_found")
