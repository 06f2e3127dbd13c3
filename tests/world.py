"""What the tests of all routes send their requests to, and the one shape of errors that they expect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accounts import tokens
from accounts.actors import Actor
from accounts.models import Credential
from accounts.scopes import Scope, ScopeBinding
from tests.callers import Caller
from tests.routes import ACCOUNT, Route
from workspaces.models import Workspace


@dataclass
class World:
    """An account with a workspace whose host is silent, so that nothing that is accepted waits."""

    owner: Caller
    workspace: Workspace
    credential: Credential

    @property
    def ids(self) -> dict[str, str]:
        return {"workspace_id": self.workspace.pk, "credential_id": self.credential.pk}

    def send(self, route: Route, headers: dict[str, str], body: Any = "", **more: Any) -> Any:
        sent = {"content_type": "application/json", "headers": headers, **more}
        return self.owner.client.generic(route.method, route.at(**self.ids), body, **sent)

    def actor(self, scope: Scope = ACCOUNT, binding: ScopeBinding | None = None) -> Actor:
        credential = Credential.objects.get(client_id=self.owner.client_id)
        binding = binding or ScopeBinding()
        return Actor(self.owner.account, scope, credential.pk, "t", binding.namespace_id, binding.namespace_slug)

    def token(self, *, ttl: int = 900, scope: Scope = ACCOUNT) -> str:
        return tokens.mint_token(actor=self.actor(), scope=scope, binding=ScopeBinding(), ttl=ttl, label="").token


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
