"""An edge that serves pages: a real Caddy, releases made by the store, requests byte by byte."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pages.releases.store import PageStore
from pages.releases.store_paths import PageName
from supervise.instance import load_instance
from tests.commands.conftest import short_folder
from tests.commands.test_edge import open_edge
from tests.free_ports import free_port
from tests.pages.archives import archive_of
from tests.pages.stores import TEXT, release_make

DOMAIN = "pages.localhost"
HTML = "text/html; charset=utf-8"
JS = "text/javascript; charset=utf-8"
HTML_WANTED = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
OWN_404 = b"<h1>not here</h1>"
PLAIN_404 = b"There is no page at this address."
SITE = {
    "index.html": b"<h1>home</h1>",
    "about.html": b"about",
    "both.html": b"page",
    "both/index.html": b"folder",
    "docs/index.html": b"docs",
    "docs/404.html": b"no doc",
    "404.html": OWN_404,
    "empty.txt": b"",
    "plain": b"plain text",
    "app-C2xYz9aQ.js": TEXT,
    "m.mjs": b"export {}",
    "a.wasm": b"\0asm",
    "site.webmanifest": b"{}",
    "p.avif": b"avif",
    "p.png": b"\x89PNG\r\n\x1a\n",
    "s.svg": b"<svg/>",
    "f.json": b"{}",
    "a b.html": b"space",
    "\u00fc.html": b"umlaut",
    "a%2fb.txt": b"percent",
    "x[1]*{2}.txt": b"glob",
    "q?x.txt": b"question",
    "{x}.html": b"braces",
    "{http.request.host}/c.html": b"a placeholder's name",
    "{env.HOME}/index.html": b"a folder",
    "100%41?#.html": b"coded",
    ".well-known/security.txt": b"Contact: x",
    "d/e/f/index.html": b"deep",
    "v1.2/index.html": b"dots",
    "v1.2/user.html": b"user",
}
SPA = {"index.html": b"<h1>spa</h1>", "assets/app-C2xYz9aQ.js": TEXT, "docs/a.txt": b"a"}


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Edge:
    port: int
    store: PageStore
    deployed: dict[str, int] = field(default_factory=dict)

    def deploy(self, slug: str, files: dict[str, bytes]) -> None:
        number = self.deployed[slug] = self.deployed.get(slug, 0) + 1
        release_make(self.store, f"pg_{slug}", number, archive_of(files))
        self.store.release_publish(f"pg_{slug}", number)
        self.store.name_add(f"pg_{slug}", PageName.slug(DOMAIN, slug))

    def ask(self, host: str, target: str = "/", method: str = "GET", **headers: str) -> Answer:
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as connection:
            connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            raw = b"".join(iter(lambda: connection.recv(65536), b""))
        return answer_of(raw)

    def site(self, target: str = "/", method: str = "GET", **headers: str) -> Answer:
        return self.ask(f"site.{DOMAIN}", target, method, **headers)


def answer_of(raw: bytes) -> Answer:
    head, _, body = raw.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        size, _, rest = body.partition(b"\r\n")
        body = rest[: int(size, 16)]
    return Answer(int(status.split()[1]), headers, body)


@contextmanager
def open_site() -> Iterator[Edge]:
    """An edge with the pages `site` (a release before it), `spa` and `bare`."""
    with short_folder() as folder:
        instance = load_instance(folder / "edge", free_port())
        (instance.state / "secret.txt").write_text("of the host")
        with open_edge(instance):
            made = Edge(instance.port, PageStore(instance.state / "pages"))
            made.deploy("site", SITE | {"app-B1xYz9aQ.js": TEXT + b"old", "old.txt": b"old"})
            made.deploy("site", SITE)
            made.deploy("spa", SPA)
            made.deploy("bare", {"a.txt": b"a"})
            yield made
