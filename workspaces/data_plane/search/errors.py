"""Errors of the search routes."""

from __future__ import annotations

from common.errors import Conflict


class SearchFailed(Conflict):
    """The search program ended with an error that is no fault of the request's."""

    code = "search_failed"
    message = "The search did not run in the machine."


class SearchMemoryExceeded(SearchFailed):
    """A line, or an expression, needs more memory than the search program may have."""

    message = "The search needs more memory than it may have. Search in fewer files, or for a simpler expression."
