"""What the account routes fail with beyond the general codes."""

from __future__ import annotations

from common.errors import ValidationError


class PinMissing(ValidationError):
    """A namespace or workspace scope needs to name what it is pinned to."""

    message = "A pinned scope must name its namespace or workspace."
