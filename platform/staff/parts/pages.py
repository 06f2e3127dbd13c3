"""Pages of single rows in the admin: tabs of panels above the form. Each app adds its panels to the pages of others.

A panel is data: facts, a table, bars or a chart; templates of the app `dashboard` draw it. Data that a user may not
view is not read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.utils.safestring import SafeString

from staff.parts.columns import badge, list_url
from staff.parts.input import checked_value, given_id

ROWS = 10  # of a table on a page


@dataclass(frozen=True, slots=True)
class Bar:
    """The used part of a limit; without a limit only the number is shown."""

    label: str
    used: str
    limit: str = ""
    share: float | None = None
    url: str = ""

    @property
    def percent(self) -> int:
        return round(100 * min(1.0, self.share or 0))

    @property
    def kind(self) -> str:
        share = self.share or 0
        return "bad" if share >= 1 else "warning" if share >= 0.8 else "good"


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines or bars over `labels`; each of `series` has a label and values. `kind`: `line` or `bar`."""

    key: str
    labels: Sequence[str]
    series: Sequence[tuple[str, Sequence[float | None]]]
    kind: str = "line"

    @property
    def data(self) -> dict[str, Any]:
        """Return the data for the page's script, as JSON."""
        return {"kind": self.kind, "labels": list(self.labels), "series": [list(each) for each in self.series]}


@dataclass(frozen=True, slots=True)
class Panel:
    """One box. `more`: where all of it is listed. `template`: what is shown below the rest, with the panel's `data`."""

    title: str
    facts: Sequence[tuple[str, Any]] = ()
    headers: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    bars: Sequence[Bar] = ()
    chart: Chart | None = None
    note: str = ""
    empty: str = ""
    more: str = ""
    wide: bool = False
    template: str = ""
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not (self.facts or self.rows or self.bars or self.chart or self.template)


@dataclass(frozen=True, slots=True)
class Tab:
    """One tab of a page; `key` is its name in the address."""

    key: str
    label: str
    panels: Sequence[Panel]


Provider = Callable[[HttpRequest, Any], Panel | Iterable[Panel] | None]
Badges = Callable[[Any], list[SafeString]]
_providers: dict[str, list[tuple[str, str, Provider]]] = defaultdict(list)


@dataclass(frozen=True, slots=True)
class PageForm:
    """The structure of a model's page: the order of its tabs, the name of that with the form, its badges."""

    tabs: Sequence[str]
    form_tab: str = "Raw"
    badges: Badges | None = None


_forms: dict[str, PageForm] = {}


def page(model: str, *tabs: str, form_tab: str = "Raw", badges: Badges | None = None) -> None:
    """Declare the page of `model` (`app.Model`)."""
    _forms[model.lower()] = PageForm(tabs, form_tab, badges)


def panel(model: str, tab: str, permission: str = "") -> Callable[[Provider], Provider]:
    """Register a function whose panels are shown in this tab of the page of `model` (`app.Model`), to those who have
    the permission (`app.view_model`)."""

    def register(provider: Provider) -> Provider:
        _providers[model.lower()].append((tab, permission, provider))
        return provider

    return register


def tabs_of(request: HttpRequest, model: str, row: Any, order: Sequence[str]) -> list[Tab]:
    """Return the tabs of a row's page that have something to show, in this order; others after them."""
    found: dict[str, list[Panel]] = {name: [] for name in order}
    for tab, permission, provider in _providers[model.lower()]:
        if permission and not request.user.has_perm(permission):
            continue
        made = provider(request, row)
        panels = [made] if isinstance(made, Panel) else list(made or ())
        found.setdefault(tab, []).extend(panels)
    return [Tab(name.lower().replace(" ", "-"), name, panels) for name, panels in found.items() if panels]


def table(
    title: str,
    rows: QuerySet[Any] | Sequence[Any],
    columns: Sequence[tuple[str, Callable[[Any], Any]]],
    *,
    more: str = "",
    empty: str = "None.",
    wide: bool = True,
) -> Panel:
    """Return a panel with the first rows; `more` is shown if there may be others."""
    found = list(rows[: ROWS + 1])
    cells = [[read(row) for _, read in columns] for row in found[:ROWS]]
    return Panel(title, headers=[name for name, _ in columns], rows=cells, more=more, empty=empty, wide=wide)


class HistoryMixin:
    """A mixin for admin classes: a user who may not view rows of the model does not learn from the history's page which
    there are.
    """

    def history_view(self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None) -> Any:
        if not self.has_view_or_change_permission(request):  # type: ignore[attr-defined]
            raise PermissionDenied
        return super().history_view(request, object_id, extra_context)  # type: ignore[misc]


class PageMixin(HistoryMixin):
    """A mixin for admin classes: the page of a row has the panels that are registered for its model. The form is a
    tab.
    """

    change_form_template = "console/object.html"

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        key = given_id(object_id)
        try:
            checked_value(self.model._meta.pk, key)  # type: ignore[attr-defined]
        except ValidationError:
            return None
        return super().get_object(request, key, from_field)  # type: ignore[misc]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> Any:
        context = {**(extra_context or {}), **self._page(request, object_id)}
        return super().change_view(request, object_id, form_url, context)  # type: ignore[misc]

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponseBase:
        """Return the audit entries of the row: Django's own history has what forms wrote, and no action."""
        if not request.user.has_perm("staff.view_staffentry"):
            own: HttpResponseBase = super().history_view(request, object_id, extra_context)
            return own
        label = self.model._meta.label_lower  # type: ignore[attr-defined]
        entries = list_url("staff.StaffEntry", by_object_type=label, by_object_id=given_id(unquote(object_id)))
        return HttpResponseRedirect(entries)

    def _page(self, request: HttpRequest, object_id: str) -> dict[str, Any]:
        model = self.model._meta.label  # type: ignore[attr-defined]
        form = _forms.get(model.lower())
        if request.method != "GET" or form is None:
            return {}
        row = self.get_object(request, unquote(object_id))
        if row is None or not self.has_view_or_change_permission(request, row):  # type: ignore[attr-defined]
            return {}
        tabs = tabs_of(request, model, row, form.tabs)
        wanted = request.GET.get("tab", "")
        keys = [tab.key for tab in tabs] + [form.form_tab.lower()]
        return {
            "page_tabs": tabs,
            "page_badges": form.badges(row) if form.badges else _status_badges(row),
            "page_form_tab": form.form_tab,
            "page_active": wanted if wanted in keys else keys[0],
        }


def _status_badges(row: Any) -> list[SafeString]:
    status = getattr(row, "status", "")
    return [badge(status)] if status else []
