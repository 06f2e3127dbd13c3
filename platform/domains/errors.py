"""Errors of the domain routes (wire contract, section 5)."""

from __future__ import annotations

from common.errors import Conflict, DomainError, NotFound


class DomainTaken(Conflict):
    """`details.domain`: the name that is taken."""

    code = "domain_taken"
    message = "The domain belongs to another page or workspace, whose TXT record is in the domain's zone."


class DomainNotVerified(DomainError):
    """`details` is the body of the check."""

    code = "domain_not_verified"
    status = 400
    message = "The DNS records of the domain are not the required ones; `details` shows what was found."


class DomainLimit(Conflict):
    """`details`: `current` and `max`."""

    code = "domain_limit_exceeded"
    message = "The account has reached its limit of custom domains."


class NotConnected(NotFound):
    message = "No domain is connected."
