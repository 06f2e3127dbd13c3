"""Errors of the account routes beyond the general codes."""

from __future__ import annotations

from common.errors import ValidationError


class BindingMissing(ValidationError):
    """A namespace or workspace scope without its namespace or workspace."""

    message = "This scope must name its namespace or workspace."
