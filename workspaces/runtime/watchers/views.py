"""Views of `/r/watchers` (wire contract, section 4b, "Terminals, watchers")."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from common.errors import NotFound
from common.openapi import refused
from common.responses import respond
from vmbackend.guest.hold import HoldClient, KeptWatch
from workspaces.data_plane.json_bodies import read_body
from workspaces.files.paths import displayed_path
from workspaces.runtime.base import RuntimeRequest, RuntimeViewSet
from workspaces.runtime.held import UNKNOWN_WATCHER, TooManyWatchers, with_held
from workspaces.runtime.watchers.serializers import (
    WatcherRemovedResponse,
    WatcherRequest,
    WatcherResponse,
    WatchersResponse,
)

T = TypeVar("T")
# A folder with a million others takes a while until all of them are watched.
CALL_SECONDS = 120.0
STOPPED = "`vm_not_running`; `guest_kit_outdated`: the machine needs a restart for this"
ONE = refused({404: "`not_found`: there is no such watcher", 409: STOPPED})


class WatchersViewSet(RuntimeViewSet):
    """Watchers of folders. Their events go over the socket `{url}/ws`, to each that is open."""

    @extend_schema(
        request=WatcherRequest,
        responses={
            200: WatcherResponse,
            **refused(
                {
                    400: "`validation_error`; `path_invalid`: no folder, or none that can be watched",
                    409: f"{STOPPED}; `watch_limit`",
                }
            ),
        },
    )
    async def create(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Watch all folders below one; return once they are watched.

        It outlives sockets. It ends by `DELETE`, with its folder or machine, or when no socket was open for ten
        minutes. A workspace has at most eight, those of its sandbox's sockets included.
        """
        data = await read_body(WatcherRequest, request)
        made = await self._call(lambda held: held.kept_watches.keep(data["folder"], data["patterns"]))
        return respond(WatcherResponse, watcher=watcher_fields(made))

    @extend_schema(responses={200: WatchersResponse, **refused({409: STOPPED})})
    async def list(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Return the watchers of the workspace."""
        found = await self._call(lambda held: held.kept_watches.list())
        return respond(WatchersResponse, watchers=[watcher_fields(each) for each in found])

    @extend_schema(responses={200: WatcherResponse, **ONE})
    async def show(self, request: RuntimeRequest, watcher_id: str, named_id: str = "") -> Response:
        """Return a watcher."""
        number = _watcher_number(watcher_id)
        found = await self._call(lambda held: held.kept_watches.show(number))
        return respond(WatcherResponse, watcher=watcher_fields(found))

    @extend_schema(responses={200: WatcherRemovedResponse, **ONE})
    async def remove(self, request: RuntimeRequest, watcher_id: str, named_id: str = "") -> Response:
        """End a watcher."""
        number = _watcher_number(watcher_id)
        await self._call(lambda held: held.kept_watches.end(number))
        return respond(WatcherRemovedResponse, watcher_id=str(number))

    async def _call(self, work: Callable[[HoldClient], Awaitable[T]]) -> T:
        guest = await self.guest()
        return await guest.call(partial(with_held, work=work, limit=TooManyWatchers), CALL_SECONDS)


def watcher_fields(watch: KeptWatch) -> dict[str, Any]:
    """Return the fields of `WatcherObject`."""
    return {
        "id": str(watch.id), "root": displayed_path(watch.folder), "dir_count": watch.folders,
        "excludes": list(watch.patterns), "active": watch.active,
    }  # fmt: skip


def _watcher_number(watcher_id: str) -> int:
    """Return the number of a watcher. Raise NotFound for what no watcher has."""
    if not (watcher_id.isascii() and watcher_id.isdecimal() and len(watcher_id) <= 10):
        raise NotFound(UNKNOWN_WATCHER)
    return int(watcher_id)
