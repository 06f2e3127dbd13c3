"""What workspaces have used.

Written by `make client`.
"""

from __future__ import annotations

from microvm.addresses import quoted
from microvm.sync.group import Group
from microvm.types.usage import ActivityResponse, AllUsageResponse, ChartResponse, SeriesResponse, UsageTotals


class UsageRoutes(Group):
    """What workspaces have used."""

    def all(self) -> AllUsageResponse:
        """Totals of each workspace since its creation (or the deletion of its usage), and their sum."""
        answer: AllUsageResponse = self._call("GET", "/workspace/usage")
        return answer

    def activity(self, *, from_: str | None = None, to: str | None = None) -> ActivityResponse:
        """Activity and usage within a window; default: the last 24 hours."""
        answer: ActivityResponse = self._call("GET", "/workspace/activity", query={"from": from_, "to": to})
        return answer

    def series(
        self,
        workspace: str,
        *,
        all: bool | None = None,
        from_: str | None = None,
        last: str | None = None,
        tier: int | None = None,
        to: str | None = None,
    ) -> SeriesResponse:
        """The time series of a tier; by default the finest that reaches back to the start of the window."""
        answer: SeriesResponse = self._call(
            "GET",
            f"/workspace/{quoted(workspace)}/usage",
            query={"all": all, "from": from_, "last": last, "tier": tier, "to": to},
        )
        return answer

    def totals(self, workspace: str) -> UsageTotals:
        """Totals since its creation, or since its usage was deleted."""
        answer: UsageTotals = self._call("GET", f"/workspace/{quoted(workspace)}/usage/totals", part="usage")
        return answer

    def credits_chart(self, workspace: str) -> ChartResponse:
        """Credits used recently: at most 7 points by minute, hour or day. Cached for up to a minute."""
        answer: ChartResponse = self._call("GET", f"/workspace/{quoted(workspace)}/usage/credits/chart")
        return answer

    def start_tracking(self, workspace: str) -> None:
        """Start tracking: totals and series are updated from now on. On by default. Idempotent."""
        self._call("POST", f"/workspace/{quoted(workspace)}/usage/tracking/start", again=True)

    def stop_tracking(self, workspace: str) -> None:
        """Stop tracking: totals and series stay unchanged. Live statistics and billing continue. Idempotent."""
        self._call("POST", f"/workspace/{quoted(workspace)}/usage/tracking/stop", again=True)

    def delete(self, workspace: str) -> None:
        """Delete totals and series permanently. Billing records stay."""
        self._delete(f"/workspace/{quoted(workspace)}/usage")
