"""The context in which the steps of an operation run."""

from __future__ import annotations

from collections.abc import Callable
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
    from workspaces.host.transfers import Transfers

MAX_MESSAGE = 500


FACTS = "facts"  # in an operation's params


def recorded_facts(operation: Operation) -> list[str]:
    """Return the facts that earlier attempts of an operation recorded."""
    return list(operation.params.get(FACTS, []))


class Cancelled(Exception):
    """End of the operation by a delete: its steps stop, and everything they created is removed."""


@dataclass(slots=True)
class Context:
    """One attempt at one operation. `facts`: those of this attempt and, as true, those recorded by earlier ones.

    `note_digest` is told which digest the registry gave for a tag. `transfers`: copies to and from other hosts.
    """

    operation: Operation
    workspace: Workspace
    driver: Driver
    images: ImageStore
    note_digest: Callable[[str, str], None]
    transfers: Transfers
    facts: dict[str, object] = field(default_factory=dict)

    def remaining(self) -> float:
        """Return the seconds to the deadline, at least one: `expire_operations` ends an operation past it."""
        return max(1.0, (self.operation.deadline_at - timezone.now()).total_seconds())

    def __post_init__(self) -> None:
        self.facts.update(dict.fromkeys(recorded_facts(self.operation), True))

    def record_fact(self, fact: str) -> None:
        """Record a fact, as true, for later attempts and for `fail_abandoned`."""
        self.facts[fact] = True
        queue.record_facts(self.operation, **{FACTS: sorted({*recorded_facts(self.operation), fact})})

    def check_cancelled(self) -> None:
        """Raise Cancelled if a delete has ended the operation, or ClaimLost."""
        if queue.is_cancelled(self.operation):
            raise Cancelled(self.operation.pk)

    def record_provisioning(self, **fields: object) -> None:
        """Write the progress of a creation, columns without their prefix; readers see it at once."""
        now = timezone.now()
        columns = {f"provisioning_{name}": value for name, value in fields.items()}
        update_row(self.workspace, **columns, provisioning_updated_at=now, updated_at=now)


def finish_cancelled(context: Context) -> None:
    """End the operation in favour of a delete, whose host is notified when this commits."""
    with transaction.atomic():
        queue.finish_operation(
            context.operation, OperationState.CANCELLED, code="cancelled", message="Cancelled by a delete."
        )
