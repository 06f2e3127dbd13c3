"""A host with a warm pool, whose rounds tests make themselves."""

from __future__ import annotations

import pytest
from django.conf import settings

from tests.callers import Caller
from tests.fakehost import NAME, FakeHost
from vmbackend.models import Host
from workspaces.host.pool import keeper
from workspaces.host.pool.keeper import PoolKeeper
from workspaces.models import WarmMachine
from workspaces.models.warm_machine import WarmState
from workspaces.warm_machines import PoolShape, record_request, shape_of

IMAGE = "localhost/tiny:1"
SIZES = {"cpu_millis": 1000, "memory_mb": 512, "disk_size_mb": 512}
SHAPE = shape_of(IMAGE, **SIZES)


class Pool:
    """The pool of a host in this process."""

    def __init__(self, host: FakeHost) -> None:
        self.host = host

    @property
    def keeper(self) -> PoolKeeper:
        return self.host.runtime.pool

    def ask(self, number: int = 1, shape: PoolShape = SHAPE) -> None:
        """Have creates that found no machine."""
        for _ in range(number):
            record_request(shape, Host.objects.get(name=NAME), served=False)

    def fill(self, number: int = 1, shape: PoolShape = SHAPE) -> list[str]:
        """Have that many machines ready; return their ids."""
        self.ask(number, shape)
        for _ in range(number):
            self.keeper.run_once()
        made = self.ids()
        assert len(made) == number
        return made

    def ids(self, state: WarmState = WarmState.READY) -> list[str]:
        return list(WarmMachine.objects.filter(state=state).order_by("made_at").values_list("pk", flat=True))


@pytest.fixture
def with_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"pool_memory_mb": 4096, "pool_machines": 8}
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update=given))
    monkeypatch.setattr(keeper, "ROUND_SECONDS", 3600.0)
    monkeypatch.setattr(keeper, "QuietHost", lambda: lambda: True)


@pytest.fixture
def pool(with_settings: None, vmhost: FakeHost) -> Pool:
    return Pool(vmhost)


@pytest.fixture
def tiny(api: Caller) -> dict[str, object]:
    """Return the body that asks for a workspace of the pool's shape."""
    return {"image": IMAGE, "config": {"memory_mb": 512, "disk_size_mb": 512}}
