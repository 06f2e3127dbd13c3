"""Staff edit the catalog: in the admin, with revisions, with shapes that hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client

from tests.callers import Caller
from tests.staff.pages import confirm
from tests.workspaces.test_shapes import assert_fits
from workspaces.images.serializers import CatalogResponse
from workspaces.images.services import catalog_entry_save
from workspaces.models import CatalogEntry

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("catalog")]
ADMIN = "/admin/workspaces/catalogentry/"


def form_of(entry: CatalogEntry, **changes: Any) -> dict[str, Any]:
    """What the admin's form sends for an entry."""
    plain = ["id", "label", "desc", "category", "position", "image", "base_image", "preset", "os_family"]
    plain += ["os_distribution", "os_version", "logo", "color"]
    lists = ["includes", "software", "keywords", "env", "vm_defaults", "capabilities", "desktop"]
    form = {name: getattr(entry, name) or "" for name in plain}
    form |= {name: json.dumps(getattr(entry, name)) for name in lists} | {"is_shown": "on", "reason": "why"}
    return form | changes


def test_an_edit_is_a_new_revision_and_shows_at_once(staff: Client, api: Caller) -> None:
    entry = CatalogEntry.objects.get(pk="postgres")
    answer = staff.post(f"{ADMIN}postgres/change/", form_of(entry, image="docker.io/library/postgres:18"))
    assert answer.status_code == 302, answer.content
    entry.refresh_from_db()
    assert (entry.revision, entry.reference) == (2, "docker.io/library/postgres:18")
    shown = api.get("/workspace/images?search=postgresql").json()["images"][0]
    assert (shown["image"], shown["revision"]) == ("docker.io/library/postgres:18", 2)


def test_what_is_no_content_makes_no_revision(staff: Client) -> None:
    entry = CatalogEntry.objects.get(pk="postgres")
    staff.post(f"{ADMIN}postgres/change/", form_of(entry, position=5, recommended="on"))
    entry.refresh_from_db()
    assert (entry.position, entry.revision, entry.recommended) == (5, 1, True)
    catalog_entry_save(entry=entry)
    assert CatalogEntry.objects.get(pk="postgres").revision == 1


def test_an_entry_is_made_without_a_preset(staff: Client, api: Caller) -> None:
    form = form_of(CatalogEntry.objects.get(pk="redis"), id="own", label="Ours", image="redis:6", preset="")
    for name in ("own", "own-2"):
        answer = staff.post(f"{ADMIN}add/", {**form, "id": name})
        assert answer.status_code == 302, answer.content
    made = CatalogEntry.objects.get(pk="own")
    assert (made.preset, made.reference, made.revision) == (None, "docker.io/library/redis:6", 1)
    assert len(api.get("/workspace/images?search=Ours").json()["images"]) == 2


def test_entries_are_hidden_and_shown_again(staff: Client, api: Caller) -> None:
    for action, number in (("hide_entries", 0), ("show_entries", 1)):
        confirm(staff, "workspaces/catalogentry", action, "postgres")
        assert len(api.get("/workspace/images?search=postgresql").json()["images"]) == number


def test_the_admin_searches_and_filters(staff: Client) -> None:
    page = staff.get(ADMIN, {"q": "PostgreSQL", "category__exact": "database"}).content.decode()
    assert "postgres.svg" in page
    assert "redis.svg" not in page
    assert staff.get(f"{ADMIN}postgres/change/").status_code == 200


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "Upper"),
        ("id", "a/b"),
        ("id", "x\n"),
        ("image", "--help"),
        ("image", "dir:/etc"),
        ("base_image", "a b"),
        ("preset", "No Spaces"),
        ("category", "all"),
        ("os_family", "plan9"),
        ("color", "#FFF"),
        ("color", "red"),
        ("includes", "text"),
        ("includes", [1]),
        ("includes", [""]),
        ("keywords", {"a": 1}),
        ("software", [{"version": "1"}]),
        ("env", [{"key": "1A", "desc": "x"}]),
        ("env", [{"key": "A"}]),
        ("env", [{"key": "A", "desc": "x", "required": "yes"}]),
        ("env", [{"key": "A", "desc": "x"}, {"key": "A", "desc": "y"}]),
        ("env", [{"key": "A", "desc": "x", "secret": True}]),
        ("vm_defaults", {"cpus": 13}),
        ("vm_defaults", {"memory_mb": 64}),
        ("vm_defaults", {"disk_size_mb": "1"}),
        ("vm_defaults", {"disk": 100}),
        ("vm_defaults", [1]),
        ("capabilities", ["Not A Word"]),
        ("desktop", {"prepared": True}),
        ("desktop", {"installable": True, "minimum_resources": {"memory_mb": 1}}),
        ("desktop", {"installable": True, "cmd": "sh"}),
    ],
)
def test_a_wrong_shape_is_refused(entry: Callable[..., CatalogEntry], field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        entry(**{field: value})
    assert list(caught.value.message_dict) == [field]


def test_fields_left_empty_hold_what_is_empty_for_them(staff: Client, api: Caller) -> None:
    lists = ["includes", "software", "keywords", "env", "capabilities"]
    for number, empty in enumerate(("", "[]", "{}", "null")):
        form = form_of(CatalogEntry.objects.get(pk="redis"), id=f"own-{number}", preset="")
        answer = staff.post(f"{ADMIN}add/", form | dict.fromkeys([*lists, "vm_defaults", "desktop"], empty))
        assert answer.status_code == 302, answer.content
        made = CatalogEntry.objects.get(pk=f"own-{number}")
        assert [getattr(made, name) for name in [*lists, "vm_defaults", "desktop"]] == [[], [], [], [], [], {}, None]
    assert_fits(api.get("/workspace/images?search=own-").json(), CatalogResponse())


def test_a_preset_belongs_to_one_entry(entry: Callable[..., CatalogEntry]) -> None:
    with pytest.raises(ValidationError):
        entry("own", preset="postgres")


def test_an_entry_that_staff_deleted_does_not_come_back_by_itself(api: Caller) -> None:
    CatalogEntry.objects.filter(pk="postgres").delete()
    assert api.get("/workspace/images?search=postgresql").json()["images"] == []


def test_a_deleted_entry_is_no_longer_listed(staff: Client, api: Caller) -> None:
    confirm(staff, "workspaces/catalogentry", "remove", "postgres", reason="why")
    assert not CatalogEntry.objects.filter(pk="postgres").exists()
    assert "postgres" not in [entry["id"] for entry in api.get("/workspace/images").json()["images"]]
