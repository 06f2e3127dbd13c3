"""Code in a workspace that sends, and what it is answered."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.test import Client

from accounts.models import Account
from notifications.models import SendToken
from workspaces.models import Workspace


@dataclass(frozen=True)
class Sender:
    """`secret`: the token's plaintext."""

    client: Client
    account: Account
    workspace: Workspace
    token: SendToken
    secret: str

    def post(self, body: Any, **headers: str) -> Any:
        """The response to a request with the token and nothing else."""
        data = body if isinstance(body, str | bytes) else json.dumps(body)
        sent = {"Authorization": f"Bearer {self.secret}", **headers}
        return self.client.generic("POST", "/notifications/send", data, content_type="application/json", headers=sent)

    def send(self, **body: Any) -> dict[str, Any]:
        """The counts, checked: they always sum up."""
        answer = self.post(body or {"title": "Built", "body": "All is well."})
        assert answer.status_code == 200, answer.content
        found: dict[str, Any] = answer.json()
        assert found["success"] is True
        assert found["delivered"] + found["failed"] == found["devices"]
        assert sum(group["count"] for group in found.get("errors", [])) == found["failed"]
        return found


def counts(answer: dict[str, Any]) -> tuple[int, int, int]:
    return answer["delivered"], answer["failed"], answer["devices"]


def by_code(answer: dict[str, Any]) -> dict[str, int]:
    """Failures by code, without the prefix that all have."""
    return {group["code"].removeprefix("messaging/"): group["count"] for group in answer.get("errors", [])}
