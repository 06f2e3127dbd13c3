"""Pages made directly, for tests that need no deploy."""

from __future__ import annotations

from itertools import count
from typing import Any

from accounts.models import Account
from pages.models import Page, PageRelease
from pages.states import DeploymentState

_numbers = count(1)


def make_page(account: Account, *, namespace: Any = None, **fields: Any) -> Page:
    """A page's row without files, as after its first deploy."""
    number = next(_numbers)
    made = {
        "name": f"page {number}",
        "slug": f"the-page-{number}",
        "domain": "pages.localhost",
        "source_workspace_id": "ws_gone",
        "exported_path": "/site",
        "deployment_state": DeploymentState.DEPLOYED,
        **fields,
    }
    return Page.objects.create(account=account, namespace=namespace or account.namespaces.get(is_default=True), **made)


def make_release(page: Page, number: int = 1, **fields: Any) -> PageRelease:
    """A release's row without files."""
    made = {"files": 1, "bytes": 10, "source_workspace_id": "ws_gone", "exported_path": "/site", **fields}
    return PageRelease.objects.create(page=page, number=number, **made)
