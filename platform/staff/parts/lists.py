"""Lists of the admin: pages without a count, filters without huge choices, and columns that can be read at a glance.

A list costs the same whatever its table holds: a page reads its rows and one more, which tells whether there is a next
one. Tables that grow without end are paged by key (`keyset`), so that the last page costs as much as the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any

from django.contrib import messages
from django.contrib.admin import ChoicesFieldListFilter, FieldListFilter, ShowFacets, SimpleListFilter
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.contrib.filters.forms import SearchForm
from unfold.views import ChangeList

from staff.parts.first_rows import OneOf, first_keys, first_keys_of, keys_in_window
from staff.parts.id_times import rows_before, rows_since
from staff.parts.input import checked_value, possible_keys
from staff.parts.keysets import cursor_of, cursor_values, reversed_order, rows_beyond
from staff.parts.search import search_conditions

AFTER, BEFORE = "_after", "_before"
ROWS = 50
# Beyond it no list has a page; databases refuse numbers that are much larger.
MOST_PAGES = 10**6


class Paging:
    """Links that the list's template shows in place of numbered pages; each is empty if it leads nowhere."""

    template_name = "console/list_pages.html"
    per_page = ROWS

    def __init__(self, shown: str, before: str, after: str) -> None:
        self.shown, self.before, self.after = shown, before, after
        self.count = self.num_pages = 0


class FilteredChangeList(ChangeList):  # type: ignore[misc]  # its package has no types
    """A list that its filters alone choose from.

    Django's own takes any lookup of any column of the table (`?token_hash__startswith=a`): what is shown on no page
    could be guessed letter by letter.
    """

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(request, *args, **kwargs)
        except OverflowError as exc:  # the number of a row, in a filter
            raise IncorrectLookupParameters(exc) from exc

    def get_filters(self, request: HttpRequest) -> Any:
        specs, has_filters, left, *others = super().get_filters(request)
        if left:
            messages.error(request, f"This list has no filter {', '.join(sorted(left))}; the whole list is shown.")
            raise IncorrectLookupParameters(f"no filters: {sorted(left)}")
        return specs, has_filters, left, *others


class UncountedChangeList(FilteredChangeList):
    """A page of rows, found by its number, or by key if the admin class has a `keyset`.

    The text may be in one of several columns; of a table with a `keyset`: `staff.parts.first_rows`.
    """

    page_num: int
    query: str
    conditions: Sequence[Q] = ()
    unsearched: QuerySet[Any]

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        for name in (AFTER, BEFORE):
            self.params.pop(name, None)
            self.filter_params.pop(name, None)
        term, self.query = self.query, ""  # Django's own search is an OR of all conditions
        rows = super().get_queryset(request, exclude_parameters)
        self.query = term
        self.conditions = self.model_admin.search_conditions(term) if term else ()
        self.unsearched = rows
        found: QuerySet[Any] = rows.filter(reduce(or_, self.conditions)) if self.conditions else rows
        return found

    def get_results(self, request: HttpRequest) -> None:
        keyset = (self.conditions and self.model_admin.search_keyset) or self.model_admin.keyset
        rows = self._rows_by_key(request, keyset) if keyset else self._rows_by_number()
        self.result_list = rows
        self.result_count = len(rows)
        # Nothing is known of the rows on other pages; unfold says something if the two differ.
        self.full_result_count = self.result_count
        self.show_full_result_count = self.can_show_all = self.multi_page = False
        self.show_admin_actions = True

    def _rows_by_number(self) -> list[Any]:
        number = self.page_num = min(max(1, self.page_num), MOST_PAGES)
        start = (number - 1) * self.list_per_page
        found = list(self.queryset[start : start + self.list_per_page + 1])
        rows = found[: self.list_per_page]
        before = self.get_query_string({"p": number - 1}) if number > 1 else ""
        after = self.get_query_string({"p": number + 1}) if len(found) > len(rows) else ""
        self.paginator = Paging(_range(start, len(rows)), before, after)
        return rows

    def _rows_by_key(self, request: HttpRequest, keyset: Sequence[str]) -> list[Any]:
        backwards = BEFORE in request.GET
        values = cursor_values(self.model, request.GET.get(BEFORE if backwards else AFTER, ""), keyset)
        order = [reversed_order(name) for name in keyset] if backwards else list(keyset)
        found = self._first_rows(order, rows_beyond(order, values) if values else Q())
        rows = found[: self.list_per_page]
        more = len(found) > len(rows)
        if backwards:
            rows.reverse()
        before, after = (more, True) if backwards else (bool(values), more)
        self.paginator = Paging(
            "",
            self.get_query_string({BEFORE: cursor_of(rows[0], keyset)}) if rows and before else "",
            self.get_query_string({AFTER: cursor_of(rows[-1], keyset)}) if rows and after else "",
        )
        return rows

    def _first_rows(self, order: Sequence[str], within: Q) -> list[Any]:
        """Return the first rows, one more than a page has."""
        count = self.list_per_page + 1
        if not self.conditions:
            return list(self.queryset.filter(within).order_by(*order)[:count])
        keys = self._first_keys(self.unsearched.filter(within), order, count)
        return list(self.apply_select_related(self.root_queryset.filter(pk__in=keys)).order_by(*order))

    def _first_keys(self, rows: QuerySet[Any], order: Sequence[str], count: int) -> list[Any]:
        only = self.conditions[0] if len(self.conditions) == 1 else None
        if isinstance(only, OneOf):
            return first_keys_of(rows, only, order, count)
        if only is not None and self.model_admin.search_newest_first:
            keys = keys_in_window(rows, only, order, count)
            if len(keys) == count:
                return keys
        return first_keys(rows, self.conditions, order, count)


def _range(start: int, count: int) -> str:
    return f"{start + 1} to {start + count}" if count else "none"


class CheckedListMixin:
    """A mixin for admin classes: a list that takes nothing but its filters, and keys that a row can have."""

    model: Any

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return FilteredChangeList

    def response_action(self, request: HttpRequest, queryset: Any, *args: Any, **kwargs: Any) -> Any:
        """Carry out an action. Keys that no row can have are not looked for."""
        keys = possible_keys(self.model, request.POST.getlist(ACTION_CHECKBOX_NAME))
        sent = request.POST.copy()
        sent.setlist(ACTION_CHECKBOX_NAME, [str(key) for key in keys])
        request.POST = sent  # type: ignore[assignment]  # a copy of it
        return super().response_action(request, queryset, *args, **kwargs)  # type: ignore[misc]


class ListMixin(CheckedListMixin):
    """A mixin for admin classes: lists as described above.

    `keyset`: the order of a table that grows without end, as of `order_by`, whose columns are never null and are
    together unique; such a list has no other order. `search_keyset`: the order of what a search found, if an index
    has another one than `keyset`. `search_newest_first`: a text that nearly all rows may have is looked for in the
    first ones before all others (`keys_in_window`). `search_ids`, `search_ips`: columns in which an id or an address
    is looked up exactly, in place of a search for a text in `search_fields` (`staff.parts.search`).
    """

    keyset: tuple[str, ...] = ()
    search_keyset: tuple[str, ...] = ()
    search_newest_first = False
    search_ids: tuple[str, ...] = ()
    search_ips: tuple[str, ...] = ()
    list_per_page = ROWS
    list_max_show_all = 0
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    list_filter_submit = True

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return UncountedChangeList

    def get_sortable_by(self, request: HttpRequest) -> Any:
        return () if self.keyset else super().get_sortable_by(request)  # type: ignore[misc]

    def get_ordering(self, request: HttpRequest) -> Any:
        return self.keyset or super().get_ordering(request)  # type: ignore[misc]

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        """Search the choices of a form's field; a list uses `search_conditions` instead."""
        conditions = self.search_conditions(search_term)
        return queryset.filter(reduce(or_, conditions)) if conditions else queryset, False

    def search_conditions(self, term: str) -> Sequence[Q]:
        """Return conditions of which a found row fulfils at least one; none: no term, or nothing to search in."""
        return search_conditions(self.model, term.strip(), self.search_fields, self.search_ids, self.search_ips)  # type: ignore[attr-defined]


class IdFilter(FieldListFilter):
    """A field for an exact id or word: no list of all that exist is read, and nothing is searched for a part of it."""

    template = "unfold/filters/filters_field.html"

    def __init__(self, field: Any, *args: Any, field_path: str) -> None:
        self.field_of_column = field
        self.column = getattr(field, "attname", field_path) if "__" not in field_path else field_path
        self.parameter = f"by_{field_path}"
        super().__init__(field, *args, field_path=field_path)  # type: ignore[misc]  # five others
        found = self.used_parameters.get(self.parameter)
        self.value = str(found[-1] if isinstance(found, list) else found or "").strip()

    def expected_parameters(self) -> list[str | None]:
        return [self.parameter]

    def has_output(self) -> bool:
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value:
            return queryset
        try:
            return queryset.filter(**{self.column: checked_value(self.field_of_column, self.value)})
        except ValidationError:  # no row has it
            return queryset.none()

    def choices(self, changelist: Any) -> Iterator[Any]:
        label = f"By {self.title} (exact)"
        yield {"form": SearchForm(name=self.parameter, label=label, data={self.parameter: self.value})}


class ConditionFilter(SimpleListFilter):
    """Choices of which each is a condition. `conditions`: value to label and condition, made when it is used."""

    conditions: Mapping[str, tuple[str, Callable[[], Q]]] = {}

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(value, label) for value, (label, _) in self.conditions.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.conditions.get(self.value() or "")
        return queryset.filter(chosen[1]()) if chosen else queryset


class ChosenValuesFilter(ChoicesFieldListFilter):
    """Choices of a column. `chosen`: those that are chosen, usually one or none."""

    @property
    def chosen(self) -> frozenset[str]:
        found: str | list[str] = self.lookup_val or []
        return frozenset({found} if isinstance(found, str) else found)


class AgeFilter(FieldListFilter):
    """Rows of the last hour, day, week or month, or those that are older than a month."""

    AGES = (
        ("hour", "Last hour", timedelta(hours=1)),
        ("day", "Last day", timedelta(days=1)),
        ("week", "Last week", timedelta(days=7)),
        ("month", "Last 30 days", timedelta(days=30)),
    )
    OLDER = "older"

    def __init__(self, *args: Any, field_path: str) -> None:
        self.parameter = f"age_{field_path}"
        super().__init__(*args, field_path=field_path)  # type: ignore[misc]  # five others
        found = self.used_parameters.get(self.parameter)
        self.value = str(found[-1] if isinstance(found, list) else found or "")

    def expected_parameters(self) -> list[str | None]:
        return [self.parameter]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        now = timezone.now()
        if self.value == self.OLDER:
            return queryset.filter(rows_before(queryset.model, self.field_path, now - self.AGES[-1][2]))
        for name, _, age in self.AGES:
            if name == self.value:
                return queryset.filter(rows_since(queryset.model, self.field_path, now - age))
        return queryset

    def choices(self, changelist: Any) -> Iterator[Any]:
        rows = [("", "Any time"), *((name, text) for name, text, _ in self.AGES), (self.OLDER, "Older than 30 days")]
        for name, text in rows:
            query = changelist.get_query_string({self.parameter: name or None})
            yield {"selected": self.value == name, "query_string": query, "display": text}
