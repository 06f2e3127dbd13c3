"""A driver that lacks a part of the contract is refused when it is made, not when the part is first asked for."""

from __future__ import annotations

import pytest

from vmbackend.copies import Copied
from vmbackend.driver import Driver
from vmbackend.fake.driver import FakeDriver
from vmbackend.moves import Moved
from vmbackend.policy import Networking

METHODS = ["assign", *(name for part in (Copied, Moved, Networking) for name in vars(part) if not name.startswith("_"))]


@pytest.mark.parametrize("method", METHODS)
def test_a_driver_without_a_method_of_the_contract_cannot_be_made(method: str) -> None:
    assert method in Driver.__abstractmethods__
    lacking = type("Lacking", (FakeDriver,), {method: getattr(Driver, method)})
    with pytest.raises(TypeError, match=method):
        lacking()
