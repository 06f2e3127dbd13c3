"""Calls of what a guest keeps, with the session of a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from common.errors import Conflict, NotFound
from vmbackend.guest.hold import HoldClient, HoldUnsupported, TerminalLimit, TerminalNotFound, WatchNotFound
from vmbackend.guest.hold.errors import RequestUnknown
from vmbackend.guest.session import GuestSession
from workspaces.errors import GuestKitOutdated

T = TypeVar("T")
UNKNOWN_TERMINAL = "There is no such terminal in this workspace."
UNKNOWN_WATCHER = "There is no such watcher in this workspace."


class TooManyTerminals(Conflict):
    code = "terminal_limit"
    message = "The workspace has as many terminals as it may, and none has ended: remove one."


class TooManyWatchers(Conflict):
    code = "watch_limit"
    message = "The workspace has as many watchers as it may, those of its sockets included: remove one."


async def with_held(session: GuestSession, work: Callable[[HoldClient], Awaitable[T]], limit: type[Conflict]) -> T:
    """Return what `work` returns for what a guest keeps. Raise the errors of `held_errors`."""
    with held_errors(limit):
        return await work(await session.open_held())


@contextmanager
def held_errors(limit: type[Conflict]) -> Iterator[None]:
    """Translate the errors of terminals and watches; those of any guest are left to `workspaces.guests`.

    `limit`: raised if there are as many as there may be.
    """
    try:
        yield
    except TerminalNotFound as exc:
        raise NotFound(UNKNOWN_TERMINAL) from exc
    except WatchNotFound as exc:
        raise NotFound(UNKNOWN_WATCHER) from exc
    except TerminalLimit as exc:
        raise limit from exc
    except (RequestUnknown, HoldUnsupported) as exc:
        raise GuestKitOutdated from exc
