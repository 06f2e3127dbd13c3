"""What the tests of all routes send their requests to, and the one shape of errors that they expect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from django.db.models import Model

from accounts import tokens
from accounts.actors import Actor
from accounts.models import Credential
from accounts.scopes import Scope, ScopeBinding
from tests.callers import Caller
from tests.route import ACCOUNT, Route
from tests.routes import ADDRESSED_BY, MAKE_ROWS, VALUES, merged
from workspaces.models import Workspace


@dataclass
class World:
    """An account with a row for each placeholder of the routes (`make_rows` of each app's routes module)."""

    owner: Caller
    rows: dict[str, Model]

    @classmethod
    def of(cls, owner: Caller) -> World:
        return cls(owner, merged(make_rows(owner) for make_rows in MAKE_ROWS))

    @property
    def workspace(self) -> Workspace:
        return cast(Workspace, self.rows["workspace_id"])

    @property
    def credential(self) -> Credential:
        return cast(Credential, self.rows["credential_id"])

    @property
    def ids(self) -> dict[str, str]:
        """A value for each placeholder."""
        return VALUES | {name: str(getattr(row, ADDRESSED_BY.get(name, "pk"))) for name, row in self.rows.items()}

    def stored(self) -> dict[str, dict[str, Any]]:
        """The rows as the database has them."""
        return {name: type(row)._default_manager.filter(pk=row.pk).values().get() for name, row in self.rows.items()}

    def send(self, route: Route, headers: dict[str, str], body: Any = "", **more: Any) -> Any:
        sent = {"content_type": "application/json", "headers": headers, **more}
        return self.owner.client.generic(route.method, route.at(**self.ids), body, **sent)

    def actor(self, scope: Scope = ACCOUNT, binding: ScopeBinding | None = None) -> Actor:
        credential = Credential.objects.get(client_id=self.owner.client_id)
        binding = binding or ScopeBinding()
        return Actor(self.owner.account, scope, credential.pk, "t", binding.namespace_id, binding.namespace_slug)

    def token(self, *, ttl: int = 900, scope: Scope = ACCOUNT, binding: ScopeBinding | None = None) -> str:
        binding = binding or ScopeBinding()
        return tokens.mint_token(actor=self.actor(), scope=scope, binding=binding, ttl=ttl, label="").token


def assert_error(answer: Any, status: int, code: str | None = None) -> None:
    """The one shape of errors (wire contract, section 1)."""
    assert answer.status_code == status, answer.content[:400]
    assert answer["Content-Type"].split(";")[0] == "application/json"
    body = answer.json()
    assert {"success", "error", "code", "message", "request_id"} <= set(body)
    assert set(body) <= {"success", "error", "code", "message", "request_id", "details"}
    assert body["success"] is False
    assert body["message"]
    assert isinstance(body["message"], str)
    assert body["request_id"] == answer["X-Request-ID"] != ""
    if code is not None:
        assert body["code"] == code
    if body["code"] not in ("unauthorized", "forbidden"):
        assert body["error"] == body["code"]
    else:
        assert body["error"] == body["code"].capitalize()
