"""Grants of connections other than event streams: the connection ends soon after the grant is revoked.

One check for everything of a loop, as for event streams: in a thread, one call for each kind of grant.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager

from common.sse.calls import cancel_task
from common.sse.open_grants import OpenGrant, OpenGrants, RevocationCheck
from common.sse.runtime import in_thread

logger = logging.getLogger(__name__)

CHECK_SECONDS = 0.5


class GrantWatch:
    """The watched grants of one loop, and their check."""

    def __init__(self) -> None:
        self.open = OpenGrants()
        self._checking = asyncio.ensure_future(self._check())

    async def close(self) -> None:
        await cancel_task(self._checking)

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.open.end_revoked(in_thread)
            except Exception as exc:  # while the database does not answer, what is open goes on
                logger.warning("grants cannot be checked: %s", exc)


_watches: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, GrantWatch] = weakref.WeakKeyDictionary()


@asynccontextmanager
async def watched_grant(grant: Hashable, revoked: RevocationCheck, end: Callable[[str], None]) -> AsyncIterator[None]:
    """Within the context, `end` is called with a reason soon after `revoked` names the grant; it must not raise.

    Any number of processes: each one checks what is open in it.
    """
    loop = asyncio.get_running_loop()
    watch = _watches.get(loop)
    if watch is None:
        watch = _watches[loop] = GrantWatch()
    opened = OpenGrant(grant, revoked, end)
    watch.open.add(opened)
    try:
        yield
    finally:
        watch.open.remove(opened)
        if not len(watch.open) and _watches.get(loop) is watch:
            del _watches[loop]
            await watch.close()
