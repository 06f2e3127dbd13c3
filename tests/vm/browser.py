"""A headless Chromium, driven by its own protocol over two pipes; it ends with this process, however that ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = "chromium"
ANSWER_SECONDS = 60.0
END_SECONDS = 10.0
# Kept for `Page.events`; the browser sends them once their domain is enabled.
KEPT = {"Network.requestWillBeSent", "Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"}
OPTIONS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-proxy-server", "--mute-audio"),
)


class Browser:
    """Pages by their session; one command at a time."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._number, self._rest = 0, b""
        self._loaded: set[str] = set()
        self._registrations: dict[str, str] = {}
        self._kept: list[dict[str, Any]] = []
        self._targets: list[str] = []

    def open(self, url: str) -> Page:
        """A tab of its own with the page, loaded: its scripts have run."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._targets.append(target)
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        page.call("Page.enable")
        page.call("Page.setLifecycleEventsEnabled", enabled=True)
        answer = page.call("Page.navigate", url=url)
        assert "errorText" not in answer, f"{url}: {answer}"
        until = time.monotonic() + ANSWER_SECONDS
        while answer["loaderId"] not in self._loaded:
            assert time.monotonic() < until, f"{url} is not loaded"
            self._message()
        return page

    def close_pages(self) -> None:
        """All that were opened, with their streams: of one host a browser keeps six connections in all pages."""
        while self._targets:
            self.call("Target.closeTarget", targetId=self._targets.pop())

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        self._number += 1
        command = {"id": self._number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._to, json.dumps(command).encode() + b"\0")
        until = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < until:
            message = self._message()
            if message.get("id") == self._number:
                assert "error" not in message, (method, message["error"])
                found: dict[str, Any] = message["result"]
                return found
        raise AssertionError(f"Chromium does not answer {method}")

    def registration_of(self, scope: str) -> str:
        """The id of the service worker with this scope, of a page in which `ServiceWorker.enable` was called."""
        until = time.monotonic() + ANSWER_SECONDS
        while scope not in self._registrations:
            assert time.monotonic() < until, f"no service worker for {scope}: {self._registrations}"
            self._message()
        return self._registrations[scope]

    def kept(self, session: str, method: str) -> list[dict[str, Any]]:
        """What the events of one kind and page said, in their order."""
        events = [event for event in self._kept if (event["sessionId"], event["method"]) == (session, method)]
        return [event["params"] for event in events]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._back, 1 << 16)
            assert more, "Chromium ended"
            self._rest += more
        first, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        params = message.get("params", {})
        if message.get("method") == "Page.lifecycleEvent" and params["name"] == "load":
            self._loaded.add(params["loaderId"])
        if message.get("method") == "ServiceWorker.workerRegistrationUpdated":
            self._registrations |= {each["scopeURL"]: each["registrationId"] for each in params["registrations"]}
        if message.get("method") in KEPT:
            self._kept.append(message)
        return message


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def record(self) -> None:
        """From now on requests and what is written to the console are kept."""
        for domain in ("Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def requests(self) -> list[dict[str, Any]]:
        """Of `record`: each with `url`, `method` and `headers`. No data: URLs."""
        sent = [event["request"] for event in self._browser.kept(self._session, "Network.requestWillBeSent")]
        return [request for request in sent if not request["url"].startswith("data:")]

    def complaints(self) -> list[Any]:
        """Of `record`: errors and warnings, of the page's scripts and of the browser (files, policies)."""
        of = self._browser.kept
        logged = [event["entry"] for event in of(self._session, "Log.entryAdded")]
        called = of(self._session, "Runtime.consoleAPICalled")
        return [
            *(entry for entry in logged if entry["level"] in ("error", "warning")),
            *(event["args"] for event in called if event["type"] in ("error", "warning", "assert")),
            *of(self._session, "Runtime.exceptionThrown"),
        ]


@contextmanager
def browser() -> Iterator[Browser]:
    """It resolves names below localhost to this machine. Its profile is temporary."""
    program = shutil.which(PROGRAM)
    assert program, "chromium is not installed (packages.debian)"
    profile = tempfile.mkdtemp(prefix="mvb-", dir="/tmp")
    (theirs, to), (back, answers) = os.pipe(), os.pipe()
    command = ["setpriv", "--pdeathsig", "KILL", program, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
    try:
        # The protocol's file descriptors are 3 and 4. Other shells than bash take one-digit numbers only.
        process = subprocess.Popen(
            ["bash", "-c", 'exec "$@" 3<&"$IN" 4>&"$OUT"', "bash", *command],
            pass_fds=(theirs, answers),
            env={**os.environ, "IN": str(theirs), "OUT": str(answers), "TMPDIR": profile},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs)
        os.close(answers)
        try:
            yield Browser(to, back)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(to)
            os.close(back)
    finally:
        _remove(profile)


def _remove(folder: str) -> None:
    """Its processes are killed, and each may write until it has died of that."""
    until = time.monotonic() + END_SECONDS
    while Path(folder).exists():
        shutil.rmtree(folder, ignore_errors=True)
        assert time.monotonic() < until, f"{folder} does not go away"
