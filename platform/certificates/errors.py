"""Errors of certificates, for callers of the API."""

from __future__ import annotations

from common.errors import Conflict


class RenewalInProgress(Conflict):
    """One order at a time for a name."""

    code = "renewal_in_progress"
    message = "A certificate for this name is being ordered already."
