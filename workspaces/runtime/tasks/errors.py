"""Errors of tasks as the API has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from common.errors import Conflict, NotFound, RateLimited
from vmbackend.guest.hold import HoldUnsupported, InputFull, TerminalEnded, TerminalLimit
from vmbackend.guest.hold.command import NotStarted
from vmbackend.guest.hold.errors import RequestUnknown, TaskNotFound
from workspaces.errors import CommandInvalid, GuestKitOutdated

RETRY_SECONDS = 5
UNKNOWN_TASK = "There is no such task in this workspace."


class TaskEnded(Conflict):
    code = "task_ended"
    message = "The task, or its input, has ended."


class TaskInputFull(Conflict):
    code = "input_full"
    message = "The task does not read its input, and more than 1 MiB of it would wait; nothing was taken."


@contextmanager
def task_errors() -> Iterator[None]:
    """Translate the errors of a guest's tasks; those of any guest are left to `workspaces.guests`."""
    try:
        yield
    except TaskNotFound as exc:
        raise NotFound(UNKNOWN_TASK) from exc
    except TerminalEnded as exc:
        raise TaskEnded from exc
    except InputFull as exc:
        raise TaskInputFull from exc
    except TerminalLimit as exc:
        message = "As many tasks run in this workspace, or as many read this one, as may; try again later."
        raise RateLimited(message, headers={"Retry-After": str(RETRY_SECONDS)}) from exc
    except (RequestUnknown, HoldUnsupported) as exc:
        raise GuestKitOutdated from exc
    except NotStarted as exc:
        raise CommandInvalid("The command, its directory or its environment is too long.") from exc
