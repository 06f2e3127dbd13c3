"""What a step of an operation works with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.db import transaction
from django.utils import timezone

from vmbackend.driver import Driver
from workspaces.models import Operation, Workspace
from workspaces.models.operation import OperationState
from workspaces.operations import queue
from workspaces.rows import update_row

if TYPE_CHECKING:
    from vmbackend.images.store import ImageStore

MAX_MESSAGE = 500


FACTS = "facts"  # in an operation's params


def recorded_facts(operation: Operation) -> list[str]:
    """What earlier attempts of an operation found worth keeping."""
    return list(operation.params.get(FACTS, []))


class Cancelled(Exception):
    """A delete wants the operation to end; its steps stop here and what they made is removed."""


@dataclass(slots=True)
class Context:
    """One attempt at one operation. `facts` are this attempt's; what `remember` kept is in those of later ones too."""

    operation: Operation
    workspace: Workspace
    driver: Driver
    images: ImageStore
    facts: dict[str, object] = field(default_factory=dict)

    def remaining(self) -> float:
        """Seconds to the deadline, at least one: what is past it is expired by the sweep."""
        return max(1.0, (self.operation.deadline_at - timezone.now()).total_seconds())

    def __post_init__(self) -> None:
        self.facts.update(dict.fromkeys(recorded_facts(self.operation), True))

    def remember(self, fact: str) -> None:
        """Keep a fact, as true, for every later attempt and for whoever ends the operation from outside."""
        self.facts[fact] = True
        queue.record_facts(self.operation, **{FACTS: sorted({*recorded_facts(self.operation), fact})})

    def check(self) -> None:
        """Raises Cancelled, or Preempted where the claim is gone."""
        if queue.is_cancelled(self.operation):
            raise Cancelled(self.operation.pk)

    def provisioning(self, **fields: object) -> None:
        """Tell how far a creation is; readers see it at once."""
        now = timezone.now()
        columns = {f"provisioning_{name}": value for name, value in fields.items()}
        update_row(self.workspace, **columns, provisioning_updated_at=now, updated_at=now)


def finish_cancelled(context: Context) -> None:
    """End the operation because a delete wants it to; the delete is rung for when this commits."""
    with transaction.atomic():
        queue.finish(context.operation, OperationState.CANCELLED, code="cancelled", sentence="Cancelled by a delete.")
