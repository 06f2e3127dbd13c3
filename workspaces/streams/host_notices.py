"""Word of the host in the open event streams of its workspaces: `event: host`, with its state and since when.

It needs neither the host nor Redis: each process reads the rows of what is open in it, once a second, in one query.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from common.sse.batch import Batch, seconds_to_next
from common.sse.frames import plain_frame
from common.sse.runtime import Notices
from common.times import iso
from vmbackend.host_states import HostState, shown_since, shown_state
from workspaces.grants import batches
from workspaces.models import Workspace

logger = logging.getLogger(__name__)

HOST = "host"


class HostWord(NamedTuple):
    """The state of a host as users see it, and since when as they read it."""

    host_state: str | None
    host_since: str | None


def host_notices(workspace_id: str) -> Notices:
    """Return what tells a stream of each change of the host's state, and of one that is not active as it is opened."""

    async def run(send: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        state: str | None = HostState.ACTIVE
        while True:
            seen = await _seen(workspace_id)
            if seen is not None and seen.host_state not in (None, state):
                state = seen.host_state
                send(plain_frame(HOST, seen._asdict()))
            await asyncio.sleep(seconds_to_next(loop.time()))

    return run


async def _seen(workspace_id: str) -> HostWord | None:
    try:
        return await _STATES.get(workspace_id)
    except Exception as exc:  # while the database does not answer, streams go on
        logger.warning("the host of %s is not known: %s", workspace_id, exc)
        return None


def _states(ids: Sequence[str]) -> dict[str, HostWord]:
    rows = Workspace.objects.order_by().values_list("pk", shown_state("host__"), shown_since("host__"))
    return {key: HostWord(state, iso(since)) for part in batches(ids) for key, state, since in rows.filter(pk__in=part)}


_STATES = Batch(_states)
