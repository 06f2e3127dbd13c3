"""Errors of watchers as the API has them."""

from __future__ import annotations

from common.errors import Conflict


class TooManyWatchers(Conflict):
    code = "watch_limit"
    message = "The workspace has as many watchers as it may, those of its sockets included: remove one."
