"""Errors of terminals as the API has them."""

from __future__ import annotations

from common.errors import Conflict


class TooManyTerminals(Conflict):
    code = "terminal_limit"
    message = "The workspace has as many terminals as it may, and none has ended: remove one."
