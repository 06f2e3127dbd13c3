"""Changes of the usage of a workspace that another request deletes at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from common.errors import NotFound
from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from workspaces.models import Activity, Usage, Workspace
from workspaces.usage import services

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("change", [services.clear_usage, partial(services.set_tracking, tracking=False)])
def test_of_a_workspace_that_is_gone_no_usage_is_made(api: Caller, change: Callable[..., Any]) -> None:
    found = make_workspace(api.account)
    Workspace.objects.all().delete()
    with pytest.raises(NotFound):
        change(workspace=found, actor="me")
    assert not Usage.objects.exists()
    assert not Activity.objects.exists()
