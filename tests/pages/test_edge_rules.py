"""`_headers` and `_redirects` at the edge: a real Caddy, which asks the WSGI middleware for releases with rules."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler

import pytest
from django.conf import settings

from edge.domain_files import DomainFiles, link_page
from pages import edge_rules
from pages.edge_rules import PageRulesPath
from pages.releases.store import PageStore
from supervise.instance import Instance, load_instance
from tests.commands import test_edge as stubs
from tests.commands.conftest import short_folder
from tests.free_ports import free_port
from tests.pages.edge_site import DOMAIN, HTML, HTML_WANTED, Edge

RULES = {
    "index.html": b"home",
    "about.html": b"about",
    "old.txt": b"still a file",
    "app.html": b"program",
    "404.html": b"own 404",
    "{x}.html": b"braces",
    "{re.1}.txt": b"a placeholder's name",
    "_headers": b"/*\n  X-Frame-Options: DENY\n  X-Robots-Tag: all\n"
    b"/about\n  Cache-Control: no-cache\n  Content-Security-Policy: default-src 'self'\n",
    "_redirects": b"\n".join(
        [
            b"/gone /about 301", b"/blog/* /posts/:splat", b"/out/* https://example.org/:splat 302",
            b"/app/* /app.html 200", b"/{z} /{x}", b"/named/* /:splat.txt 200",
            b"/old.txt /about", b"/x/:y /z/:y?fixed=1", b"/any/* /:splat", b"/up/* /:splat 200", b"/\xc3\xbc /about",
        ]
    ),
}  # fmt: skip
asked: list[str] = []


def no_platform(environ: dict[str, str], start_response):  # type: ignore[no-untyped-def]
    start_response("404 Not Found", [("Content-Length", "0")])
    return [b""]


class Handler(WSGIRequestHandler):
    """As the api process, without Django behind the middleware."""

    def handle(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if self.parse_request():
            asked.append(self.path)
            handler = ServerHandler(self.rfile, self.wfile, self.get_stderr(), self.get_environ(), multithread=True)
            handler.request_handler = self  # type: ignore[attr-defined]
            handler.run(PageRulesPath(no_platform))

    def get_environ(self) -> dict[str, str]:
        path, _, query = self.path.partition("?")
        made = {"REQUEST_METHOD": self.command, "PATH_INFO": path, "QUERY_STRING": query, "SERVER_PROTOCOL": "HTTP/1.1"}
        return made | {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in self.headers.items()}

    def log_message(self, format: str, *args: object) -> None:
        pass


class Api(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@contextmanager
def served_api(instance: Instance) -> Iterator[None]:
    path = instance.run_dir / "api.sock"
    path.unlink()
    server = Api(str(path), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def edge() -> Iterator[Edge]:
    with short_folder() as folder, pytest.MonkeyPatch.context() as patch:
        instance = load_instance(folder / "edge", free_port())
        given = instance.settings({})
        patch.setattr(settings, "SECRET_KEY", given.secret_key)
        patch.setattr(settings, "STATE", str(instance.state))
        patch.setattr(settings, "ENV", given)
        with stubs.open_edge(instance), served_api(instance):
            made = Edge(instance.port, PageStore(instance.state / "pages"))
            made.deploy("ruled", RULES)
            made.deploy("plain", {"index.html": b"plain"})
            yield made


def test_rules_hold_under_a_custom_domain(edge: Edge) -> None:
    files = DomainFiles(Path(settings.STATE))
    files.link_set("www.example.com", link_page("pg_ruled"))
    for host in ("www.example.com", "www.example.com."):
        found = edge.ask(host)
        assert (found.status, found.body, found.headers["x-frame-options"]) == (200, b"home", "DENY")
        assert edge.ask(host, "/gone").headers["location"] == "/about"
    files.link_set("www.example.com", None)


def ruled(edge: Edge, target: str, method: str = "GET", **headers: str):  # type: ignore[no-untyped-def]
    return edge.ask(f"ruled.{DOMAIN}", target, method, **headers)


def test_headers_of_rules_are_added_and_count_before_the_edges_own(edge: Edge) -> None:
    home, about = ruled(edge, "/"), ruled(edge, "/about")
    assert (home.status, home.body, home.headers["x-frame-options"]) == (200, b"home", "DENY")
    assert home.headers["cache-control"] == "public, max-age=0, must-revalidate"
    assert (about.status, about.body, about.headers["content-type"]) == (200, b"about", HTML)
    assert about.headers["cache-control"] == "no-cache"
    assert about.headers["content-security-policy"] == "default-src 'self'"
    assert about.headers["x-content-type-options"] == "nosniff"
    assert "last-modified" not in about.headers
    assert about.headers["server"] == "Caddy"
    assert ruled(edge, "/about", If_None_Match=about.headers["etag"]).status == 304
    assert ruled(edge, "/about", "HEAD").headers["content-length"] == "5"


@pytest.mark.parametrize(
    ("target", "status", "location"),
    [
        ("/gone", 301, "/about"),
        ("/gone?a=b", 301, "/about?a=b"),
        ("/blog/2024/x", 302, "/posts/2024/x"),
        ("/blog/a%20b%0d%0aSet-Cookie:x", 302, "/posts/a%20b%0D%0ASet-Cookie%3Ax"),
        ("/out/a", 302, "https://example.org/a"),
        ("/x/1?q=2", 302, "/z/1?fixed=1"),
        ("/any//evil.example/", 302, "/evil.example/"),
        ("/any/%2Fevil.example/", 302, "/evil.example/"),
        ("/any/%5Cevil.example/", 302, "/%5Cevil.example/"),
        ("/%C3%BC", 302, "/about"),
        ("/{z}", 302, "/%7Bx%7D"),
    ],
)
def test_redirects(edge: Edge, target: str, status: int, location: str) -> None:
    answer = ruled(edge, target)
    assert (answer.status, answer.headers["location"], answer.body) == (status, location, b"")
    assert answer.headers["cache-control"] == "no-store"


def test_a_file_counts_before_a_redirect(edge: Edge) -> None:
    assert ruled(edge, "/old.txt").body == b"still a file"


def test_a_rule_with_status_200_serves_another_file(edge: Edge) -> None:
    answer = ruled(edge, "/app/users/7")
    assert (answer.status, answer.body, answer.headers["content-type"]) == (200, b"program", HTML)


@pytest.mark.parametrize(
    ("target", "body"),
    [("/{x}", b"braces"), ("/%7Bx%7D", b"braces"), ("/named/{re.1}", b"a placeholder's name"), ("/{re.1}", b"own 404")],
)
def test_names_of_placeholders_are_names(edge: Edge, target: str, body: bytes) -> None:
    assert ruled(edge, target).body == body


@pytest.mark.parametrize(
    "target", ["/up/../../manifest.json", "/up/%2e%2e/%2e%2e/manifest.json", "/up/..%2fmanifest.json", "/up/x"]
)
def test_a_rule_leads_to_no_file_outside_and_not_to_itself_again(edge: Edge, target: str) -> None:
    answer = ruled(edge, target)
    assert answer.status in {400, 404}
    assert b"digest" not in answer.body


def test_what_no_rule_fits_is_not_found_as_without_rules(edge: Edge) -> None:
    answer = ruled(edge, "/nothing", **HTML_WANTED)
    assert (answer.status, answer.body, answer.headers["cache-control"]) == (404, b"own 404", "no-store")


def test_a_release_without_rules_asks_nobody_and_rules_are_no_files(edge: Edge) -> None:
    asked.clear()
    for target in ("/", "/gone", "/_headers"):
        edge.ask(f"plain.{DOMAIN}", target)
    assert asked == []
    assert ruled(edge, "/_headers").status == ruled(edge, "/_redirects").status == 404
    assert asked


def test_the_address_of_a_release_has_its_own_rules(edge: Edge) -> None:
    edge.deploy("ruled2", {"index.html": b"1", "_redirects": b"/a /one"})
    edge.deploy("ruled2", {"index.html": b"2", "_redirects": b"/a /two"})
    hosts = {f"ruled2--r1.{DOMAIN}": "/one", f"ruled2--r2.{DOMAIN}": "/two", f"ruled2.{DOMAIN}": "/two"}
    assert {host: edge.ask(host, "/a").headers["location"] for host in hosts} == hosts


def test_no_rule_takes_a_kept_release_into_search_engines(edge: Edge) -> None:
    assert ruled(edge, "/").headers["x-robots-tag"] == "all"
    for target in ("/", "/nothing"):
        assert edge.ask(f"ruled--r1.{DOMAIN}", target).headers["x-robots-tag"] == "noindex"


@pytest.mark.parametrize("target", ["/" + "a" * 4000, "/blog/" + "%C3%BC" * 600])
def test_paths_longer_than_any_file_are_not_compared_with_rules(edge: Edge, target: str) -> None:
    answer = ruled(edge, target)
    assert (answer.status, answer.body) == (404, b"own 404")


def test_rules_are_answered_to_the_edge_alone(edge: Edge) -> None:
    def ended(status: str, headers: list[tuple[str, str]]) -> None:
        seen.append(status)

    seen: list[str] = []
    for forged in ("", f"x ruled.{DOMAIN} 1.1.1.1 x"):
        environ = {"PATH_INFO": edge_rules.REDIRECT, "HTTP_X_EDGE": forged, "HTTP_X_PAGE_PATH": "/gone"}
        PageRulesPath(no_platform)(environ, ended)  # type: ignore[arg-type]
    assert seen == ["404 Not Found"] * 2


def test_without_the_api_a_release_with_rules_is_unavailable_and_others_are_served(edge: Edge) -> None:
    socket = Path(load_instance(edge.store.root.parent, edge.port).run_dir) / "api.sock"
    away = socket.rename(socket.with_name("away.sock"))
    try:
        assert edge.ask(f"plain.{DOMAIN}").body == b"plain"
        answer = ruled(edge, "/")
    finally:
        away.rename(socket)
    assert (answer.status, answer.headers["retry-after"], answer.headers["cache-control"]) == (503, "1", "no-store")


def test_no_site_answers_for_a_certificate_authority(edge: Edge) -> None:
    """With a file, or with a redirect to where one is, a site could get a certificate of a name that is its slug's."""
    token = ".well-known/acme-challenge/" + "a" * 43
    edge.deploy(
        "own-certificate", {"index.html": b"home", token: b"mine", "_redirects": b"/* https://evil.example/:splat\n"}
    )
    for host in ("own-certificate", "own-certificate--r1"):
        for target in (f"/{token}", f"/{token}b", f"/%2ewell-known/acme-challenge/{'a' * 43}", f"//{token}"):
            answer = edge.ask(f"{host}.{DOMAIN}", target)
            assert (answer.status, answer.headers.get("location"), answer.body) == (404, None, b""), target
