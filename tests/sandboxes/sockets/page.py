"""The terminal page in a browser, and a relay before streams whose connections a test can cut."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.vm.browser import Browser, Page

SHOWN_SECONDS = 60.0
# What the policy refused, and every error of the page's scripts.
RECORD = """
window.faults = [];
document.addEventListener("securitypolicyviolation", event => {
    window.faults.push(event.violatedDirective + " " + event.blockedURI);
});
addEventListener("error", event => window.faults.push(String(event.message)));
addEventListener("unhandledrejection", event => window.faults.push(String(event.reason)));
"""
# The text of the shown terminal as it is drawn.
SCREEN = "[...document.querySelectorAll('.screen:not([hidden]) .xterm-rows > div')].map(e => e.textContent).join('\\n')"


class Relay:
    """Passes TCP connections of this host on to a Unix socket; `cut` ends all of them."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.heads: list[bytes] = []  # the first bytes of each connection
        self.open = True
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(120)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def cut(self, *, refuse: bool = False) -> None:
        """End all connections; with `refuse` new ones end at once, until `accept`."""
        self.open = not refuse
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(120)

    def accept(self) -> None:
        self.open = True

    def close(self) -> None:
        self.cut(refuse=True)
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(120)
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.open:
            writer.transport.abort()
            return
        to_reader, to_writer = await asyncio.open_unix_connection(str(self.target))
        ours = {writer, to_writer}
        self._writers |= ours
        passing = [
            asyncio.ensure_future(self._pass(reader, to_writer, keep=True)),
            asyncio.ensure_future(self._pass(to_reader, writer)),
        ]
        await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        for each in passing:
            each.cancel()
        for each in ours:
            each.transport.abort()
        self._writers -= ours

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, keep: bool = False) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if keep:
                    self.heads.append(data[:4096])
                writer.write(data)
                await writer.drain()


class TerminalPage:
    """The page of one sandbox, opened with its token."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.page: Page = browser.open("about:blank")
        self.page.call("Page.addScriptToEvaluateOnNewDocument", source=RECORD)
        self.page.call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        return self.page.value(expression)

    def wait(self, condition: str) -> None:
        until = time.monotonic() + SHOWN_SECONDS
        while not self.value(f"!!({condition})"):
            assert time.monotonic() < until, (condition, self.value("document.body.innerText")[:2000], self.faults())
            time.sleep(0.05)

    def shows(self, text: str) -> None:
        self.wait(f"{SCREEN}.includes({text!r})")

    def screen(self) -> str:
        return str(self.value(SCREEN))

    def status(self, text: str) -> None:
        self.wait(f"document.querySelector('#status')?.textContent.includes({text!r})")

    def ready(self) -> None:
        """A terminal is attached and has printed its prompt."""
        self.status("Connected")
        self.wait("!['New', undefined].includes(document.querySelector('.tab.shown button')?.textContent)")

    def type(self, text: str) -> None:
        """As a person: one key after another; a newline is Enter."""
        for line in text.splitlines(keepends=True):
            self.page.call("Input.insertText", text=line.rstrip("\n"))
            if line.endswith("\n"):
                self.press("Enter", 13, "\r")

    def press(self, key: str, code: int, text: str = "", *, control: bool = False) -> None:
        known = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 2 if control else 0}
        self.page.call("Input.dispatchKeyEvent", type="keyDown", **known, **({"text": text} if text else {}))
        self.page.call("Input.dispatchKeyEvent", type="keyUp", **known)

    def faults(self) -> list[str]:
        found: list[str] = self.value("window.faults")
        return found
