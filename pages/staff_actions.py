"""Staff's actions on a page in the admin, by the services that the API calls.

The files follow the rows after the commit, as for the API. If the process dies in between, reconcile does it.
"""

from __future__ import annotations

from functools import partial

from django import forms
from django.db import transaction
from unfold.widgets import UnfoldAdminIntegerFieldWidget

from pages import publication, services
from pages.models import Page
from pages.states import PageStatus
from staff.actions import Act, StaffAction
from staff.forms import ActionForm


class RollbackForm(ActionForm):
    """Form of a rollback. `number`: the number of a kept release."""

    number = forms.IntegerField(
        min_value=1, label="Release", widget=UnfoldAdminIntegerFieldWidget(), help_text="The number of a kept release."
    )


def _publish_on_commit(page: Page) -> None:
    transaction.on_commit(partial(publication.publish_page, page))


def _enable(act: Act) -> None:
    _publish_on_commit(services.page_staff_enable(page=act.row, actor=act.actor, origin=act.origin))


def _disable(act: Act) -> None:
    page = services.page_staff_disable(page=act.row, reason=act.reason, actor=act.actor, origin=act.origin)
    _publish_on_commit(page)


def _roll_back(act: Act) -> None:
    number = act.data["number"]
    page = services.page_rollback(page=act.row, number=number, actor=act.actor, origin=act.origin)
    _publish_on_commit(page)


def _delete(act: Act) -> None:
    publication.remove_on_commit(services.page_delete(page=act.row, actor=act.actor, origin=act.origin))


ACTIONS = (
    StaffAction(
        name="enable", label="Enable", call=_enable, icon="visibility", owner_reads=True,
        allowed=lambda row: row.status == PageStatus.DISABLED,
        will="The page is served again, even if its owner disabled it.",
    ),
    StaffAction(
        name="disable", label="Disable", call=_disable, icon="visibility_off", harms=True,
        allowed=lambda row: not row.disabled_reason,
        will="The page is not served any more, at its own name or its domain, until staff enable it. Its owner reads "
        "the reason, and cannot enable it. Its releases stay.",
    ),
    StaffAction(
        name="roll_back", label="Roll back", call=_roll_back, icon="history", harms=True, form=RollbackForm, most=1,
        allowed=lambda row: row.release is not None,
        will="A kept release is served in place of the live one.",
    ),
    StaffAction(
        name="remove", label="Delete", call=_delete, icon="delete", harms=True, permission="delete",
        will="The page is deleted with its releases, deploys and domain. It cannot be undone.",
    ),
)  # fmt: skip
