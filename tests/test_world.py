"""The rows of the route walk are made once for a file: what one test changes, no other sees."""

from __future__ import annotations

import pytest

from common.redis import redis_client, redis_key
from tests.world import World
from workspaces.models import Workspace

CHANGED = "changed by a test"


@pytest.mark.parametrize("turn", ["one test", "the next"])
def test_nothing_of_another_test_is_left(world: World, turn: str) -> None:
    counted = redis_key("throttle:of-a-test")
    assert CHANGED not in (world.workspace.name, world.workspace.namespace.name, world.owner.account.name)
    assert Workspace.objects.get(pk=world.workspace.pk).name == world.workspace.name
    assert world.rows.keys() == world.stored().keys()
    assert not redis_client().exists(counted)
    Workspace.objects.update(name=CHANGED)
    world.workspace.name = world.workspace.namespace.name = world.owner.account.name = CHANGED
    world.credential.delete()
    redis_client().set(counted, 1)
