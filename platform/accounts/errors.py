"""Errors of the account routes beyond the general codes."""

from __future__ import annotations

from accounts.models import Account
from common.errors import Unauthorized, ValidationError


class BindingMissing(ValidationError):
    """A namespace or workspace scope without its namespace or workspace."""

    message = "This scope must name its namespace or workspace."


class AccountGone(Unauthorized, Account.DoesNotExist):
    """The account was deleted, and its credentials with it, after the request had been let in."""
