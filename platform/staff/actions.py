"""Actions of staff on rows: declared in an app's admin, carried out here.

In an app's admin module:

    from staff.action_admin import StaffActionsMixin
    from staff.actions import Act, StaffAction

    def _stop(act: Act) -> object:
        return workspace_stop(workspace=act.row, actor=act.actor)

    @admin.register(Workspace)
    class WorkspaceAdmin(StaffActionsMixin, ReadOnlyAdmin):
        staff_actions = (
            StaffAction(
                name="stop", label="Stop", call=_stop, harms=True, icon="stop_circle",
                will="The machine is shut down. Its disk stays; the content of its memory is lost.",
                allowed=lambda row: row.status in STOPPABLE,
            ),
        )

The mixin comes first. It adds each action to the list (several rows) and, if `allowed` says so, as a button to the
row's page, both for users with its permission; both lead to the confirmation page at `_actions/<name>/?row=<pk>`.
`staff_rows` may be overridden for what the services read (`select_related`), `staff_subject` for whose activity has the
reason. `staff_buttons(request, row)` gives the
buttons as dicts with `title`, `path`, `icon`, `variant`, for a page with a layout of its own.

A service is called as in `Act`; a DomainError is a refusal, shown for its row and recorded; other rows are done all the
same. The audit entry is written in the transaction of the service. Views that are no such action write theirs by
`staff.audit.record_entry`; forms of the admin (`staff.parts.bases.ServiceModelAdmin`) have one without further ado.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db import IntegrityError, transaction
from django.db.models import Model, ProtectedError, RestrictedError

from common.errors import DomainError
from common.request_origin import RequestOrigin
from staff import hooks
from staff.audit import StaffMember, Target, is_repeated, record_entry
from staff.forms import ActionForm
from staff.models import Outcome
from staff.subjects import Subject

logger = logging.getLogger(__name__)

MOST_ROWS = 50
# The most rows that a message names as the reason why another row is not deleted.
MOST_NAMED = 5
DELETED = "It has been deleted."


def is_always(row: Any) -> bool:
    """Return True: for actions that every state allows."""
    return True


@dataclass(frozen=True, slots=True)
class Act:
    """One row's turn of an action. `data`: the cleaned values of the action's own form fields."""

    row: Any
    actor: str
    origin: RequestOrigin
    reason: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    user_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StaffAction:
    """`will` is the sentence of the confirmation page. `harms`: a reason is required.

    `permission`: `change`, `delete` or another of the model's, or one of another app with its label
    (`staff.open_terminal`). `is_atomic` False: the service commits by itself, or works for long; the entry is then
    written before it, and another with the outcome after it. `most`: how many rows at once. `leads_away`: the service
    returns the address to go to, which is in no entry. `initial`: what the form's own fields have for the first row.
    `owner_reads`: the owner's activity has it without a reason, too, as the service writes nothing there.
    """

    name: str
    label: str
    will: str
    call: Callable[[Act], object]
    harms: bool = False
    allowed: Callable[[Any], bool] = is_always
    permission: str = "change"
    is_atomic: bool = True
    form: type[ActionForm] = ActionForm
    icon: str = ""
    most: int = MOST_ROWS
    leads_away: bool = False
    initial: Callable[[Any], Mapping[str, Any]] | None = None
    owner_reads: bool = False

    def codename(self, model: type[Model]) -> str:
        """Return the permission as `has_perm` takes it."""
        if "." in self.permission:
            return self.permission
        return f"{model._meta.app_label}.{self.permission}_{model._meta.model_name}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """`label` of the row, and the sentence."""

    label: str
    message: str


@dataclass(slots=True)
class Outcomes:
    """Outcomes of an action for its rows. `repeated`: the page was sent before. `address`: the next page, if any."""

    done: int = 0
    repeated: int = 0
    refused: list[Refusal] = field(default_factory=list)
    address: str = ""


def rows_act(
    action: StaffAction,
    rows: list[Any],
    member: StaffMember,
    *,
    reason: str = "",
    data: Mapping[str, Any] | None = None,
    submission: str,
    subject_of: Callable[[Any], Subject] = Subject.of,
) -> Outcomes:
    """Carry out the action for each row, each in a transaction of its own, once for a submission.

    Leaves an audit entry for each row, of refusals, too. If this process dies, the rows that it had done are done.
    """
    outcomes = Outcomes()
    seen = is_repeated(submission, [str(row.pk) for row in rows])
    for row in rows:
        if str(row.pk) in seen:
            outcomes.repeated += 1
            continue
        turn = _Turn(action, member, Target.of(row), subject_of(row), submission)
        turn.carry_out(Act(row, member.actor, member.origin, reason, data or {}, member.user_id), outcomes)
    return outcomes


@dataclass(frozen=True, slots=True)
class _Turn:
    action: StaffAction
    member: StaffMember
    target: Target
    subject: Subject
    submission: str

    def carry_out(self, act: Act, outcomes: Outcomes) -> None:
        message, returned = "", None
        try:
            returned = self._call(act)
        except _Repeated:
            outcomes.repeated += 1
            return
        except DomainError as exc:
            details = "; ".join(str(text) for texts in (exc.details or {}).values() if isinstance(texts, list)
                                for text in texts)  # fmt: skip
            message = f"{exc.message} {details}".strip()
        except ObjectDoesNotExist:
            message = DELETED
        except (ProtectedError, RestrictedError) as exc:
            message = _needed_by(exc)
        if not message:
            outcomes.done += 1
            outcomes.address = str(returned) if self.action.leads_away else ""
            return
        outcomes.refused.append(Refusal(self.target.object_label, message))
        self._record(Outcome.REFUSED, act, message, submission=self.submission if self.action.is_atomic else "")

    def _call(self, act: Act) -> object:
        if self.action.is_atomic:
            with transaction.atomic():
                self._begin(Outcome.DONE, act)
                returned = self.action.call(act)
                self._give_reason(act)
            return returned
        self._begin(Outcome.BEGUN, act)
        returned = self.action.call(act)
        with transaction.atomic():
            self._record(Outcome.DONE, act)
            self._give_reason(act)
        return returned

    def _begin(self, outcome: Outcome, act: Act) -> None:
        """Begin a submission; of two at once the second waits here for the first. Raise _Repeated."""
        try:
            with transaction.atomic():
                self._record(outcome, act, submission=self.submission)
        except IntegrityError as exc:
            raise _Repeated from exc

    def _record(self, outcome: Outcome, act: Act, detail: str = "", *, submission: str = "") -> None:
        name = f"{self.target.object_type.rpartition('.')[2]}.{self.action.name}"
        try:
            with transaction.atomic():
                record_entry(
                    self.member,
                    name,
                    self.target,
                    outcome=outcome,
                    reason=act.reason,
                    detail=detail,
                    submission=submission,
                )
        except IntegrityError:
            if outcome != Outcome.REFUSED:
                raise  # else the same page, sent twice at once, has recorded it

    def _give_reason(self, act: Act) -> None:
        if act.reason or self.action.owner_reads:
            why = f": {act.reason}" if act.reason else "."
            hooks.reason_given(self.subject, f"{self.action.label} by staff{why}", act.actor, act.origin)


def _needed_by(exc: ProtectedError | RestrictedError) -> str:
    found = exc.protected_objects if isinstance(exc, ProtectedError) else exc.restricted_objects
    named = [str(row) for row in islice(found, MOST_NAMED)]
    return f"It is needed by {', '.join(named)}{' and others' if len(found) > MOST_NAMED else ''}."


class _Repeated(Exception):
    """The submission has been carried out for this row."""
