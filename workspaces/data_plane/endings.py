"""Reasons why what a token has opened ends, as its client reads them."""

from __future__ import annotations

REPLACED = "the token was replaced"
DELETED = "the machine was deleted"
INACTIVE = "the account is not active"
SUSPENDED = "the namespace is suspended"
