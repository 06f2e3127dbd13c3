"""Errors of namespaces (specification, section Errors: Namespace create and ensure)."""

from __future__ import annotations

from common.errors import DomainError


class NamespaceExists(DomainError):
    code = "namespace_exists"
    status = 409
    message = "The account has a namespace with this slug already."


class NamespaceLimitExceeded(DomainError):
    """Details carry `current` and `max`."""

    code = "namespace_limit_exceeded"
    status = 409
    message = "The account has as many namespaces as it may have."


class PlanLimitExceeded(DomainError):
    """A resource limit is above what the plan allows. Details carry `limit`, `current` and `max`."""

    code = "plan_limit_exceeded"
    status = 400
    message = "A resource limit is above the plan's."
