"""Some of an instance's processes, under the real supervisord with the real launcher."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import httpx

from supervise import control
from supervise.instance import Instance
from supervise.processes import Process, processes


def processes_named(instance: Instance, *names: str) -> list[Process]:
    return [process for process in processes(instance, instance.settings({})) if process.name in names]


@contextmanager
def running(instance: Instance, listed: list[Process], ready: dict[str, int]) -> Iterator[str]:
    """Start these processes, and wait until each path of `ready` responds to a POST with its status. Yields the URL."""
    base = instance.settings({}).base_url
    try:
        start(instance, listed)
        for path, status in ready.items():
            wait_for_status(base + path, status)
        yield base
    finally:
        control.stop_instance(instance, lambda _: None)


def start(instance: Instance, listed: list[Process]) -> None:
    with mock.patch.object(control, "processes", return_value=listed):
        control.start_supervisord(instance, instance.settings({}), tied=True)


def wait_for_status(url: str, status: int) -> None:
    deadline, seen = time.monotonic() + 60, ""
    while time.monotonic() < deadline:
        try:
            seen = str(httpx.post(url, json={}, timeout=120, trust_env=False).status_code)
        except httpx.TransportError as error:
            seen = repr(error)
        if seen == str(status):
            return
        time.sleep(0.1)
    raise AssertionError(f"{url} responds {seen}, not {status}")
