"""What workspaces have used.

Written by `make client`.
"""

from __future__ import annotations

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.usage import ActivityResponse, AllUsageResponse, ChartResponse, SeriesResponse, UsageTotals


class AsyncUsageRoutes(AsyncGroup):
    """What workspaces have used."""

    async def all(self) -> AllUsageResponse:
        """Return totals of each workspace since its creation (or the deletion of its usage), and their sum."""
        answer: AllUsageResponse = await self._call("GET", "/workspace/usage")
        return answer

    async def activity(self, *, from_: str | None = None, to: str | None = None) -> ActivityResponse:
        """Return activity and usage within a window; default: the last 24 hours."""
        answer: ActivityResponse = await self._call("GET", "/workspace/activity", query={"from": from_, "to": to})
        return answer

    async def series(
        self,
        workspace: str,
        *,
        all: bool | None = None,
        from_: str | None = None,
        last: str | None = None,
        tier: int | None = None,
        to: str | None = None,
    ) -> SeriesResponse:
        """Return the time series of a tier; by default the finest that reaches back to the start of the window."""
        answer: SeriesResponse = await self._call(
            "GET",
            f"/workspace/{quoted(workspace)}/usage",
            query={"all": all, "from": from_, "last": last, "tier": tier, "to": to},
        )
        return answer

    async def totals(self, workspace: str) -> UsageTotals:
        """Return totals since its creation, or since its usage was deleted."""
        answer: UsageTotals = await self._call("GET", f"/workspace/{quoted(workspace)}/usage/totals", part="usage")
        return answer

    async def credits_chart(self, workspace: str) -> ChartResponse:
        """Return credits used recently: at most 7 points by minute, hour or day. Cached for up to a minute."""
        answer: ChartResponse = await self._call("GET", f"/workspace/{quoted(workspace)}/usage/credits/chart")
        return answer

    async def start_tracking(self, workspace: str) -> None:
        """Start tracking: totals and series are updated from now on. On by default. Idempotent."""
        await self._call("POST", f"/workspace/{quoted(workspace)}/usage/tracking/start", again=True)

    async def stop_tracking(self, workspace: str) -> None:
        """Stop tracking: totals and series stay unchanged. Live statistics and billing continue. Idempotent."""
        await self._call("POST", f"/workspace/{quoted(workspace)}/usage/tracking/stop", again=True)

    async def delete(self, workspace: str) -> None:
        """Delete totals and series permanently. Billing records stay."""
        await self._delete(f"/workspace/{quoted(workspace)}/usage")
