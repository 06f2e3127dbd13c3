"""One route of the route walk (tests/routes.py)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from accounts.scopes import Scope

ACCOUNT, NAMESPACE, WORKSPACE, BILLING = Scope.ACCOUNT, Scope.NAMESPACE, Scope.WORKSPACE, Scope.BILLING
RESOURCE = frozenset({ACCOUNT, NAMESPACE, WORKSPACE})


@dataclass(frozen=True)
class Route:
    """One method of one route. `tokens`: access tokens are enough. `reads`: it takes a JSON body.

    `fields`: what it reads of the body beside the fields that the OpenAPI document shows.
    """

    method: str
    path: str
    scopes: frozenset[Scope] = RESOURCE
    tokens: bool = True
    reads: bool = False
    fields: tuple[str, ...] = ()

    def at(self, **values: str) -> str:
        """The path with a value for each placeholder."""
        return "/" + self.path.format(**values)

    @property
    def is_addressed(self) -> bool:
        return "{" in self.path

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def braced(path: str) -> str:
    """Django's placeholders as those of `Route`."""
    return re.sub(r"<\w+:(\w+)>", r"{\1}", path)
