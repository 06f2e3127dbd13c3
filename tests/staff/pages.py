"""Confirmation pages of staff's actions, as a browser sends them."""

from __future__ import annotations

import re
from typing import Any

from django.test import Client

ALERT = re.compile(r'name="submission" value="([0-9a-f]{32})"')


def action_url(model: str, action: str, *keys: object) -> str:
    """`model` as `workspaces/workspace`."""
    return f"/admin/{model}/_actions/{action}/?" + "&".join(f"row={key}" for key in keys)


def submission_of(client: Client, model: str, action: str, *keys: object) -> str:
    page = client.get(action_url(model, action, *keys))
    assert page.status_code == 200, (page.status_code, page.get("Location"))
    found = ALERT.search(page.content.decode())
    assert found is not None
    return found.group(1)


def confirm(client: Client, model: str, action: str, *keys: object, **fields: Any) -> Any:
    """Open the page and send it. Answers what the browser sees after it."""
    sent = {"row": list(keys), "submission": submission_of(client, model, action, *keys), **fields}
    return client.post(action_url(model, action), sent, follow=True)


def shown(answer: Any) -> list[str]:
    """The messages on a page."""
    return [str(message) for message in answer.context["messages"]]
