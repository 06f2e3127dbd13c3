"""The admin's side of actions: buttons, the choices of a list, and the confirmation page. See `staff.actions`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_http_methods
from unfold.enums import ActionVariant

from staff.actions import Outcomes, StaffAction, rows_act
from staff.audit import StaffMember
from staff.parts.columns import without_directions
from staff.parts.input import possible_keys
from staff.subjects import Subject

# Messages are stored in the session.
MOST_MESSAGES = 20


class StaffActionsMixin:
    """A mixin for admin classes with `staff_actions`; before the base class."""

    staff_actions: tuple[StaffAction, ...] = ()
    # Attributes of Django's and unfold's admin classes, which come after this one.
    model: Any
    opts: Any
    admin_site: Any
    get_queryset: Callable[[HttpRequest], QuerySet[Any]]
    has_view_permission: Callable[..., bool]

    @classmethod
    def add_staff_action(cls, action: StaffAction) -> None:
        """Add an action of an app above that of the rows: it comes first."""
        cls.staff_actions = (action, *cls.staff_actions)

    def staff_rows(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows that actions may be carried out on, as the services read them."""
        return self.get_queryset(request)

    def staff_subject(self, row: Any) -> Subject:
        """Return the object whose activity has the reason."""
        return Subject.of(row)

    def permitted_actions(self, request: HttpRequest) -> list[StaffAction]:
        """Return the actions for which the user has the permission."""
        return [action for action in self.staff_actions if request.user.has_perm(action.codename(self.model))]

    def staff_buttons(self, request: HttpRequest, row: Any) -> list[dict[str, Any]]:
        """Return the actions that the row's state allows to this user, as unfold's templates take them. No query."""
        return [
            {
                "title": action.label,
                "path": self._action_url(action, [row.pk], at_row=True),
                "icon": action.icon,
                "variant": ActionVariant.DANGER if action.harms else ActionVariant.DEFAULT,
                "attrs": {},
                "dialog": None,
            }
            for action in self.permitted_actions(request)
            if action.allowed(row)
        ]

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        row = kwargs.get("obj")
        if row is not None:
            context["actions_detail"] = [*context.get("actions_detail", ()), *self.staff_buttons(request, row)]
        return super().render_change_form(request, context, *args, **kwargs)  # type: ignore[misc]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        found: dict[str, Any] = super().get_actions(request)  # type: ignore[misc]
        own = self.permitted_actions(request)
        return {**{action.name: (_confirmation_of(action), action.name, action.label) for action in own}, **found}

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_staff_action"
        view = self.admin_site.admin_view(require_http_methods(["GET", "POST"])(self.staff_action_view))
        return [path("_actions/<slug:name>/", view, name=name), *super().get_urls()]  # type: ignore[misc]

    def staff_action_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Show what the action will do, and to which rows (GET), or do it (POST). `row`: the keys, several times."""
        action = next((one for one in self.staff_actions if one.name == name), None)
        if action is None:
            raise Http404
        if not self.has_view_permission(request) or not request.user.has_perm(action.codename(self.model)):
            raise PermissionDenied
        keys = list(dict.fromkeys((request.POST if request.method == "POST" else request.GET).getlist("row")))
        if len(keys) > action.most:
            messages.error(request, f"{action.label}: at most {action.most} rows at once.")
            return HttpResponseRedirect(self._list_url())
        rows = self._chosen(request, keys)
        if not rows:
            messages.error(request, f"{action.label}: no such row, or it has been deleted.")
            return HttpResponseRedirect(self._list_url())
        return self._answer(request, action, rows)

    def _answer(self, request: HttpRequest, action: StaffAction, rows: list[Any]) -> HttpResponse:
        sent = request.POST if request.method == "POST" else None
        shown = action.initial(rows[0]) if action.initial else {}
        initial = {**shown, "submission": secrets.token_hex(16)}
        form = action.form(sent, harms=action.harms, initial=initial)
        if not form.is_valid():
            return self._confirmation(request, action, rows, form)
        outcomes = rows_act(
            action,
            rows,
            StaffMember.of(request),
            reason=form.cleaned_data["reason"],
            data=form.own_data,
            subject_of=self.staff_subject,
            submission=form.cleaned_data["submission"],
        )
        if outcomes.address:
            return HttpResponseRedirect(outcomes.address, headers={"Referrer-Policy": "no-referrer"})
        _show(request, action, outcomes)
        return HttpResponseRedirect(self._url_after(request, rows))

    def _chosen(self, request: HttpRequest, keys: list[str]) -> list[Any]:
        return list(self.staff_rows(request).filter(pk__in=possible_keys(self.model, keys)))

    def _confirmation(self, request: HttpRequest, action: StaffAction, rows: list[Any], form: Any) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": action.label,
            "opts": self.opts,
            "action": action,
            "rows": [(row, action.allowed(row)) for row in rows],
            "form": form,
            "at_row": (request.POST.get("at") or request.GET.get("at")) == "row",
            "back": self._url_after(request, rows),
        }
        return TemplateResponse(request, "admin/staff/confirm_action.html", context)

    def _url_after(self, request: HttpRequest, rows: list[Any]) -> str:
        """Return the row's page if the action was begun there and the row is left; else the list."""
        at_row = (request.POST.get("at") or request.GET.get("at")) == "row"
        if at_row and self.get_queryset(request).filter(pk=rows[0].pk).exists():
            return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[rows[0].pk])
        return self._list_url()

    def _list_url(self) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def _action_url(self, action: StaffAction, keys: list[Any], *, at_row: bool = False) -> str:
        base = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_staff_action", args=[action.name])
        return f"{base}?{urlencode([*(('row', key) for key in keys), *([('at', 'row')] if at_row else [])])}"


class DeletedByActionMixin(StaffActionsMixin):
    """Delete by an action with a reason, in place of Django's own page and choice."""

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def _confirmation_of(action: StaffAction) -> Callable[[Any, HttpRequest, QuerySet[Any]], HttpResponse | None]:
    """Return the function that the list calls: it goes to the confirmation page."""

    def confirm(admin: Any, request: HttpRequest, rows: QuerySet[Any]) -> HttpResponse | None:
        keys = list(rows.values_list("pk", flat=True)[: action.most + 1])
        if len(keys) > action.most:
            messages.error(request, f"{action.label}: at most {action.most} rows at once.")
            return None
        return HttpResponseRedirect(admin._action_url(action, keys))

    return confirm


def _show(request: HttpRequest, action: StaffAction, outcomes: Outcomes) -> None:
    if outcomes.done:
        messages.success(request, f"{action.label}: {outcomes.done} done.")
    if outcomes.repeated:
        messages.info(request, f"{action.label}: {outcomes.repeated} had been sent before; nothing was done again.")
    for refusal in outcomes.refused[:MOST_MESSAGES]:
        messages.error(request, f"{without_directions(refusal.label)}: {refusal.message}")
    if (more := len(outcomes.refused) - MOST_MESSAGES) > 0:
        messages.error(request, f"{more} more were refused; see the audit entries.")
