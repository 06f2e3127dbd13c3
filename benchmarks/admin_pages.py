"""The addresses that `benchmarks.admin` measures, by names that are the same whatever the database holds.

Of every list: its first page, one deep in it, each choice of each filter, the order of each column by which it can be
sorted, and a search for each thing that it looks for. Of every model the page of a row, with all its tabs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.apps import apps
from django.contrib import admin
from django.db.models import Count
from django.test import RequestFactory
from django.urls import resolve, reverse

from staff.parts.keysets import cursor_of
from staff.parts.lists import IdFilter

# As many rows as staff or migrations write.
SHORT = {
    "accounts.Plan", "auth.Group", "auth.User", "cdn.PlanLimits", "certificates.AcmeAccount", "credits.Rate",
    "vmbackend.Host", "workspaces.CatalogEntry",
}  # fmt: skip
DEEP, PAGE = 0.9, 52
ABSENT, ABSENT_ID = "zq9xq", "zz_2222222222222222"
# Whose page has the most behind it: the row to which most rows of another model refer.
BUSIEST = {
    "accounts.Account": ("workspaces.Workspace", "account_id"),
    "namespaces.Namespace": ("workspaces.Workspace", "namespace_id"),
    "workspaces.Workspace": ("workspaces.Activity", "workspace_id"),
    "credits.Balance": ("credits.Entry", "balance_id"),
    "webhooks.Subscription": ("webhooks.Delivery", "subscription_id"),
    "pages.Page": ("pages.PageDeploy", "page_id"),
    "cdn.File": ("cdn.FileEvent", "file_id"),
    "cdn.Pool": ("cdn.File", "namespace_id"),
    "vmbackend.Host": ("workspaces.Workspace", "host_id"),
    "notifications.SendToken": ("notifications.Send", "token_id"),
    "assist.ApiKey": ("assist.KeyEvent", "key_id"),
}


def addresses(user: Any) -> dict[str, str]:
    """Of the admin, by name. Lists' names are the models'; `" row"` is in those of pages of rows."""
    found = {"dashboard": "/admin/", "navigation": "/admin/search/?s=work"}
    for model in sorted(admin.site._registry, key=lambda each: each._meta.label):
        pages = _Pages(user, model)
        for name, url in pages.all():
            found[f"{model._meta.label}{name}"] = url
    return found


def shown_list(url: str, user: Any) -> Any:
    """The ChangeList of an address, with its rows and filters."""
    request = RequestFactory().get(url)
    request.user = user
    return resolve(request.path).func.model_admin.get_changelist_instance(request)


def unmeasured(names: set[str]) -> set[str]:
    """Lists without a page among these, or without the rows for which they are measured."""
    labels = {model._meta.label for model in admin.site._registry}
    return {label for label in labels if label not in names or f"{label} row" not in names}


class _Pages:
    def __init__(self, user: Any, model: Any) -> None:
        self.user, self.model, self.admin = user, model, admin.site._registry[model]
        self.label = model._meta.label
        self.base = f"admin:{model._meta.app_label}_{model._meta.model_name}_"
        self.url = reverse(f"{self.base}changelist")
        order = getattr(self.admin, "keyset", ()) or ("-pk",)
        self.rows = model._default_manager.order_by(*order)
        self.count = self.rows.count()
        # A whole page follows it, where there are as many rows.
        self.deep_row = self.rows[max(0, min(int(self.count * DEEP), self.count - PAGE))] if self.count else None

    def all(self) -> Iterator[tuple[str, str]]:
        if self.deep_row is None:
            return
        shown = shown_list(self.url, self.user)
        yield "", self.url
        yield from self._deep(shown)
        yield from self._row()
        yield from self._filters(shown)
        yield from self._orders(shown)
        yield from self._searches()
        if self.label == "workspaces.MeterRecord":
            yield from self._metered()

    def _metered(self) -> Iterator[tuple[str, str]]:
        """By the owners of what has the most records."""
        owner = apps.get_model("workspaces.Metered")._default_manager.get(pk=_most(self.rows, "metered_id"))
        for column in ("workspace_id", "namespace_id", "account_id"):
            yield f" search {column}, busiest", self._list(q=getattr(owner, column))

    def _list(self, **query: Any) -> str:
        return f"{self.url}?{urlencode(query)}"

    def _deep(self, shown: Any) -> Iterator[tuple[str, str]]:
        keyset = getattr(self.admin, "keyset", ())
        if keyset:
            cursor = cursor_of(self.deep_row, keyset)
            yield " deep", self._list(_after=cursor)
            yield " deep, back", self._list(_before=cursor)
        elif self.label not in SHORT:
            yield " deep", self._list(p=max(1, int(self.count * DEEP) // shown.list_per_page))

    def _row(self) -> Iterator[tuple[str, str]]:
        yield " row", reverse(f"{self.base}change", args=[self.deep_row.pk])
        if self.label in BUSIEST:
            yield " row, busiest", reverse(f"{self.base}change", args=[busiest(self.label)])

    def _filters(self, shown: Any) -> Iterator[tuple[str, str]]:
        for spec in shown.filter_specs:
            if isinstance(spec, IdFilter):
                yield from self._id_filter(spec)
                continue
            for number, choice in enumerate(spec.choices(shown)):
                query = choice.get("query_string", "")
                if query and not choice.get("selected"):
                    yield f" {spec.title}: {choice.get('display', number)}", self.url + query

    def _id_filter(self, spec: IdFilter) -> Iterator[tuple[str, str]]:
        frequent = self._most(spec.column)
        values = {"busiest": frequent, "a row's": _value(self.deep_row, spec.column) or frequent}
        absent = ABSENT if spec.field_of_column.get_internal_type() in ("CharField", "SlugField") else ABSENT_ID
        for name, value in {**values, "absent": absent}.items():
            yield f" by {spec.column}, {name}", self._list(**{spec.parameter: value})

    def _orders(self, shown: Any) -> Iterator[tuple[str, str]]:
        if getattr(self.admin, "keyset", ()):
            return
        first = 1 if shown.list_display[0] == "action_checkbox" else 0
        for number, name in enumerate(shown.list_display):
            if number >= first and shown.get_ordering_field(name) and name in shown.sortable_by:
                yield f" sorted by {getattr(name, 'short_description', name)}", self._list(o=number)

    def _searches(self) -> Iterator[tuple[str, str]]:
        fields, ids = tuple(self.admin.search_fields or ()), tuple(getattr(self.admin, "search_ids", ()))
        if not fields and not ids:
            return
        for column in ids:
            yield f" search {column}, a row's", self._list(q=_value(self.deep_row, column))
            if column not in ("id", "owner"):
                yield f" search {column}, busiest", self._list(q=self._most(column))
        if ids:
            yield " search an id, absent", self._list(q=ABSENT_ID)
        for name in getattr(self.admin, "search_ips", ()):
            yield f" search {name}", self._list(q=_value(self.deep_row, name))
            yield f" search {name}, absent", self._list(q="10.99.99.99")
        for name in fields:
            column = name.lstrip("=^")
            value = str(_value(self.deep_row, column) or ABSENT)
            yield f" search {column}", self._list(q=value)
            yield f" search {column}, begin", self._list(q=value[:3])
        if fields:
            yield " search a word, absent", self._list(q=ABSENT)
            yield " search two words, absent", self._list(q=f"{ABSENT} a")

    def _most(self, column: str) -> Any:
        return _most(self.model._default_manager.all(), column)


def busiest(label: str) -> Any:
    model, column = BUSIEST[label]
    return _most(apps.get_model(model)._default_manager.all(), column)


def _most(rows: Any, column: str) -> Any:
    """The most frequent value."""
    counts = rows.order_by().exclude(**{column: None}).values_list(column)
    return counts.annotate(bench_rows=Count("*")).order_by("-bench_rows", column)[0][0]


def _value(row: Any, path: str) -> Any:
    return type(row)._default_manager.filter(pk=row.pk).values_list(path, flat=True).first()
