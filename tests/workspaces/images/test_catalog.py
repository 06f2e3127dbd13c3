"""`GET /workspace/images` (specification, Images, Image catalog entry)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
from django.conf import settings
from django.contrib.staticfiles import finders
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.scopes import Scope
from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from tests.workspaces.test_shapes import assert_fits
from vmbackend.images.reference import parse_reference
from workspaces.images.seed import seed_rows
from workspaces.images.serializers import CatalogResponse
from workspaces.models import CatalogEntry

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("catalog")]
CATEGORIES = ["all", "os", "devtools", "runtime", "ai", "browser", "database", "infra"]


def found(api: Caller, query: str = "") -> list[str]:
    answer = api.get(f"/workspace/images?{query}")
    assert answer.status_code == 200, answer.content
    return [image["id"] for image in answer.json()["images"]]


def test_the_catalog_is_listed_with_its_categories(api: Caller) -> None:
    body = api.get("/workspace/images").json()
    assert set(body) == {"success", "images", "categories"}
    assert body["success"] is True
    assert [category["id"] for category in body["categories"]] == CATEGORIES
    assert all(category["label"] for category in body["categories"])
    assert {image["category"] for image in body["images"]} == set(CATEGORIES) - {"all"}
    assert_fits(body, CatalogResponse())


def test_every_seeded_entry_is_complete(api: Caller) -> None:
    images = api.get("/workspace/images").json()["images"]
    assert [image["id"] for image in images] == [row["id"] for row in seed_rows()]
    for image in images:
        assert image["base_os"]["family"] == "linux"
        assert image["base_os"]["distribution"]
        assert image["label"]
        assert image["desc"].endswith(".")
        assert image["includes"]
        assert image["capabilities"]
        assert set(image["vm_defaults"]) == {"cpus", "memory_mb", "disk_size_mb"}
        assert parse_reference(image["image"])
        assert image["revision"] == 1
        for item in image["env"]:
            assert item["desc"]
            assert not (item["required"] and "default" in item)
    for entry in CatalogEntry.objects.all():
        entry.full_clean()


def test_every_logo_is_an_image_that_we_serve(api: Caller) -> None:
    prefix = f"{settings.BASE_URL}/static/"
    for image in api.get("/workspace/images").json()["images"]:
        assert image["logo"].startswith(prefix)
        path = finders.find(image["logo"].removeprefix(prefix))
        assert path, image["logo"]
        root = ElementTree.parse(path).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        # Nothing that runs or loads: the files are served from the API's own origin.
        assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {"svg", "rect", "path", "circle", "g"}


def test_databases_name_what_they_require(api: Caller) -> None:
    images = {image["id"]: image for image in api.get("/workspace/images?category=database").json()["images"]}
    required = {name: [item["key"] for item in image["env"] if item["required"]] for name, image in images.items()}
    assert required["postgres"] == ["POSTGRES_PASSWORD"]
    assert required["mysql"] == ["MYSQL_ROOT_PASSWORD"]
    assert required["mongo"] == ["MONGO_INITDB_ROOT_USERNAME", "MONGO_INITDB_ROOT_PASSWORD"]
    assert required["redis"] == []
    defaults = {item["key"]: item.get("default") for item in images["postgres"]["env"]}
    assert defaults == {"POSTGRES_PASSWORD": None, "POSTGRES_USER": "postgres", "POSTGRES_DB": None}


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_category_narrows_the_list(api: Caller, category: str) -> None:
    images = api.get(f"/workspace/images?category={category}").json()["images"]
    assert images
    assert category == "all" or {image["category"] for image in images} == {category}
    assert len(images) == (
        len(seed_rows()) if category == "all" else sum(row["category"] == category for row in seed_rows())
    )


@pytest.mark.parametrize(
    ("search", "field"),
    [
        ("wn-i", "id"),
        ("Große", "label"),
        ("GROSSE", "label"),
        ("summary LINE", "desc"),
        ("registry.test/tea", "image reference"),
        ("cont%c3%a9n", "contents"),
        ("thing-2", "software"),
        ("hidden wo", "keywords"),
        ("own-id+label", "words of two fields"),
        ("%20", "every one"),
    ],
)
def test_the_search_looks_into_every_field(
    api: Caller, entry: Callable[..., CatalogEntry], search: str, field: str
) -> None:
    entry(
        "own-id", label="Große label", desc="A summary line.", image="registry.test/team/tool:1",
        includes=["Conténts"], keywords=["hidden word"], software=[{"name": "Thing-2", "version": "9"}],
    )  # fmt: skip
    assert "own-id" in found(api, f"search={search}"), field
    assert "own-id" in found(api, f"search={search}&category=os")
    assert "own-id" not in found(api, f"search={search}&category=infra")


def test_a_search_that_nothing_fits_is_empty(api: Caller) -> None:
    for search in ("nothing-like-this", "postgres nothing", "%25", "_", "\\", '"'):
        assert found(api, f"search={search}") == []
    assert found(api, "search=postgresql") == ["postgres"]
    assert found(api, "search=&category=") == found(api)


@pytest.mark.parametrize(
    ("query", "field"), [("category=games", "category"), ("category=OS", "category"), (f"search={'x' * 256}", "search")]
)
def test_a_wrong_query_names_its_field(api: Caller, query: str, field: str) -> None:
    answer = api.get(f"/workspace/images?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")
    assert list(answer.json()["details"]) == [field]


def test_hidden_entries_are_not_listed(api: Caller) -> None:
    CatalogEntry.objects.filter(pk="postgres").update(is_shown=False)
    assert "postgres" not in found(api)
    assert found(api, "search=postgresql") == []


@pytest.mark.parametrize("scope", list(Scope))
def test_every_scope_may_browse(api: Caller, scoped: Callable[..., Caller], scope: Scope) -> None:
    row = make_workspace(api.account)
    binding = {"namespace_id": row.namespace_id, "namespace_slug": "default", "workspace_id": row.pk}
    assert len(found(scoped(api, scope, **binding))) == len(seed_rows())


def test_the_number_of_queries_does_not_grow_with_the_catalog(api: Caller, entry: Callable[..., CatalogEntry]) -> None:
    def queries(query: str) -> int:
        with CaptureQueriesContext(
            connection,
        ) as caught:
            found(api, query)
        return len(caught)

    found(api)  # the credential's last use is written now and then
    few = queries(""), queries("search=own&category=os")
    for number in range(30):
        entry(f"own-{number}", env=[{"key": "A", "desc": "B"}])
    assert (queries(""), queries("search=own&category=os")) == few == (2, 2)


def test_an_address_as_logo_is_shown_as_it_stands(api: Caller, entry: Callable[..., CatalogEntry]) -> None:
    entry("own", logo="https://cdn.test/own.png")
    entry("bare")
    images: dict[str, Any] = {image["id"]: image for image in api.get("/workspace/images").json()["images"]}
    assert images["own"]["logo"] == "https://cdn.test/own.png"
    assert (images["bare"]["logo"], images["bare"]["color"], images["bare"]["preset"]) == (None, None, None)


def test_images_is_no_workspace(api: Caller) -> None:
    make_workspace(api.account, slug="images-2")
    assert api.get("/workspace/images-2").json()["workspace"]["slug"] == "images-2"
    assert api.put("/workspace/images", {}).status_code == 405
