"""One whole instance with the fake driver: the real edge, api, streams and vmhost, and no machine.

For what a client sees only through the real servers: bodies that end early, many requests at once, a browser.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.free_ports import free_port
from tests.vm.browser import Browser, browser
from tests.vm.client import Api
from tests.vm.instances import TestInstance, new_instance


@pytest.fixture(scope="package")
def hook_port() -> int:
    """Where webhooks may be sent to on this host."""
    return free_port()


@pytest.fixture(scope="package")
def served(hook_port: int) -> Iterator[TestInstance]:
    """All files of this folder share it (tests/scheduling.py)."""
    settings = {"PLATFORM_VM_BACKEND": "fake", "PLATFORM_PRIVATE_RECEIVERS": f"127.0.0.1:{hook_port}"}
    with new_instance(images=False, PLATFORM_HOST_NAME="served", **settings) as made:
        made.start()
        yield made


@pytest.fixture(scope="package")
def shared_chromium() -> Iterator[Browser]:
    with browser() as made:
        yield made


@pytest.fixture
def chromium(shared_chromium: Browser) -> Iterator[Browser]:
    """Its pages are the test's own; cookies are not."""
    yield shared_chromium
    shared_chromium.close_pages()


@pytest.fixture(scope="package")
def client(served: TestInstance) -> Api:
    return served.api()


@pytest.fixture(scope="module", autouse=True)
def no_workspace_stays(client: Api) -> Iterator[None]:
    """Each file's go at its end: together, those of all files would fill the plan's pool."""
    before = client.owned()
    yield
    client.delete_all(keep=before)


@pytest.fixture(scope="package")
def box(client: Api) -> str:
    """A running workspace."""
    made: dict[str, Any] = client.create("localhost/tiny:1")
    return str(made["id"])
