"""Pages at the edge: a real Caddy, releases made by the store, requests byte by byte."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from edge.caddy import caddyfile
from pages.releases.store_paths import PageName
from supervise.instance import load_instance
from tests.pages.edge_site import DOMAIN, HTML, HTML_WANTED, JS, OWN_404, PLAIN_404, SITE, SPA, Answer, Edge
from tests.pages.stores import TEXT

FILES = [
    ("/", 200, HTML, SITE["index.html"]),
    ("/index.html", 200, HTML, SITE["index.html"]),
    ("/?a=b", 200, HTML, SITE["index.html"]),
    ("/about", 200, HTML, b"about"),
    ("/about?x=/y.z", 200, HTML, b"about"),
    ("/about.html", 200, HTML, b"about"),
    ("/both", 200, HTML, b"page"),
    ("/both/", 200, HTML, b"folder"),
    ("/docs/", 200, HTML, b"docs"),
    ("/d/e/f/", 200, HTML, b"deep"),
    ("/v1.2/", 200, HTML, b"dots"),
    ("/v1.2/user", 200, HTML, b"user"),
    ("/plain", 200, None, b"plain text"),
    ("/empty.txt", 200, "text/plain; charset=utf-8", b""),
    ("/app-C2xYz9aQ.js", 200, JS, TEXT),
    ("/m.mjs", 200, JS, b"export {}"),
    ("/a.wasm", 200, "application/wasm", b"\0asm"),
    ("/site.webmanifest", 200, "application/manifest+json", b"{}"),
    ("/p.avif", 200, "image/avif", b"avif"),
    ("/p.png", 200, "image/png", SITE["p.png"]),
    ("/s.svg", 200, "image/svg+xml", b"<svg/>"),
    ("/f.json", 200, "application/json", b"{}"),
    ("/a%20b.html", 200, HTML, b"space"),
    ("/a%20b", 200, HTML, b"space"),
    ("/%C3%BC", 200, HTML, b"umlaut"),
    ("/a%252fb.txt", 200, "text/plain; charset=utf-8", b"percent"),
    ("/x[1]*{2}.txt", 200, "text/plain; charset=utf-8", b"glob"),
    ("/x%5B1%5D%2A%7B2%7D.txt", 200, "text/plain; charset=utf-8", b"glob"),
    ("/q%3Fx.txt", 200, "text/plain; charset=utf-8", b"question"),
    # What would be a placeholder of the edge's configuration is a name.
    ("/{x}", 200, HTML, b"braces"),
    ("/%7Bx%7D", 200, HTML, b"braces"),
    ("/%7Bx}.html", 200, HTML, b"braces"),
    ("/{http.request.host}/c", 200, HTML, b"a placeholder's name"),
    ("/{env.HOME}/", 200, HTML, b"a folder"),
    ("/100%2541%3F%23", 200, HTML, b"coded"),
    ("/{y}", 404, HTML, OWN_404),
    ("/.well-known/security.txt", 200, "text/plain; charset=utf-8", b"Contact: x"),
    # What is no file of the release: the folder's own 404.html, else the root's.
    ("/gone", 404, HTML, OWN_404),
    ("/gone.js", 404, HTML, OWN_404),
    ("/docs/gone", 404, HTML, b"no doc"),
    ("/docs/a/gone.css", 404, HTML, OWN_404),
    ("/gone/", 404, HTML, OWN_404),
    ("/a.wasm.gone", 404, HTML, OWN_404),
    ("/gone.wasm", 404, HTML, OWN_404),
    ("/gone.mjs", 404, HTML, OWN_404),
    ("/x*", 404, HTML, OWN_404),
    ("/*.html", 404, HTML, OWN_404),
    ("/{http.request.host}", 404, HTML, OWN_404),
    ("/{env.HOME}/x.txt", 404, HTML, OWN_404),
    ("/manifest.json", 404, HTML, OWN_404),
    ("/old.txt", 404, HTML, OWN_404),
    # Chunks of the release before.
    ("/app-B1xYz9aQ.js", 200, JS, TEXT + b"old"),
]


@pytest.mark.parametrize(("target", "status", "kind", "body"), FILES)
def test_files(edge: Edge, target: str, status: int, kind: str | None, body: bytes) -> None:
    answer = edge.site(target)
    assert (answer.status, answer.headers.get("content-type"), answer.body) == (status, kind, body)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "strict-origin-when-cross-origin"
    assert "last-modified" not in answer.headers
    live = status == 200 and "B1xYz9aQ" not in target
    assert answer.headers["cache-control"] == ("public, max-age=0, must-revalidate" if live else "no-store")
    head = edge.site(target, "HEAD")
    assert (head.status, head.headers.get("content-type"), head.body) == (status, kind, b"")
    assert head.headers["content-length"] == str(len(body))


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/docs", "/docs/"),
        ("/docs?a=b&c", "/docs/?a=b&c"),
        ("/d/e/f", "/d/e/f/"),
        ("/about.html/", "/about.html"),
        ("//docs", "/docs/"),
        ("///docs", "/docs/"),
        ("/%2Fdocs", "/docs/"),
    ],
)
def test_folders_and_files_have_one_address(edge: Edge, target: str, location: str) -> None:
    answer = edge.site(target)
    assert (answer.status, answer.headers.get("location")) == (308, location)


TRICKS = [
    "/../../secret.txt", "/../manifest.json", "/%2e%2e/manifest.json",
    "/%2e%2e/%2e%2e/%2e%2e/%2e%2e/secret.txt", "/..%2f..%2fmanifest.json",
    "/%2e%2e%2fmanifest.json", "/docs/../../manifest.json", "/docs/%2e%2e/%2e%2e/manifest.json",
    "/.%00./manifest.json", "/manifest.json%00.txt",
    "/%00", "/index.html%00", "/..\\manifest.json", "/..%5cmanifest.json", "/%5c..%5cmanifest.json",
    "//evil.example/%2e%2e", "//evil.example/..",
    "/\\evil.example/..", "/%5cevil.example/", "/%2f%2fevil.example/", "//evil.example", "/.//evil.example/",
    "/docs/..//evil.example", "/.git/config",
    "/%252e%252e/manifest.json", "/....//manifest.json", "/..;/manifest.json", "/~root",
    "/proc/self/environ", "/%ff%fe", "/%c0%ae%c0%ae/manifest.json",
    "/docs/.././../../rules.json", "/../retained.json", "/../current/manifest.json", "/index.html/../../manifest.json",
    "/" + "a/" * 2000, "/" + "a" * 5000, "/%", "/%zz", "/%2", "/?" + "x" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("target", TRICKS)
def test_no_path_leaves_the_release_or_the_site(edge: Edge, target: str) -> None:
    answer = edge.site(target)
    assert answer.status in {200, 308, 400, 404}
    if answer.status == 200:
        assert answer.body in SITE.values()
    assert b"of the host" not in answer.body
    assert b"digest" not in answer.body
    assert b'{"index.html"' not in answer.body
    location = answer.headers.get("location", "/")
    assert location.startswith("/")
    assert not location.startswith(("//", "/\\"))


HOSTS = [
    f"gone.{DOMAIN}", f"GONE.{DOMAIN}", f"gone.{DOMAIN}.", f"site.{DOMAIN}..", f"-site.{DOMAIN}", f"site-.{DOMAIN}",
    f"site--r9.{DOMAIN}", f"site--r0.{DOMAIN}",
    f"site--r01.{DOMAIN}", f"site--r.{DOMAIN}", f"site--r1x.{DOMAIN}", f"site--current.{DOMAIN}", f"*.{DOMAIN}",
    f"%2e%2e.{DOMAIN}", f"site%2f.{DOMAIN}", f"si_te.{DOMAIN}", f"{'a' * 64}.{DOMAIN}", f"si{{x}}te.{DOMAIN}",
]  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
def test_other_hosts_are_not_found(edge: Edge, host: str) -> None:
    for target in ("/", "/index.html", "/manifest.json"):
        answer = edge.ask(host, target)
        assert answer.status in {400, 404}, answer
        assert b"home" not in answer.body
        if answer.status == 404 and b"<title>" in answer.body:
            assert PLAIN_404 in answer.body
            assert answer.headers["cache-control"] == "no-store"


def test_an_unknown_name_and_an_unknown_page_are_the_same_answer(edge: Edge) -> None:
    answers = [
        edge.ask(host, "/x.js")
        for host in (f"gone.{DOMAIN}", f"UPPER.{DOMAIN}", f"gone--r1.{DOMAIN}", f"site--r99.{DOMAIN}", f"bare.{DOMAIN}",
                     f"a.site.{DOMAIN}", f"gone.{DOMAIN}.", "unknown.example", "UNKNOWN.example.", "site")
    ]  # fmt: skip
    for answer in answers:
        answer.headers.pop("date")
        answer.headers.pop("x-request-id")
        answer.headers.pop("x-robots-tag", "")
    assert all(answer == answers[0] for answer in answers)
    assert answers[0].status == 404


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "localhost.", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:80"]
)
def test_names_of_the_platform_are_no_pages(edge: Edge, host: str) -> None:
    """An absolute address in the request counts as its host."""
    for answer in (edge.ask(host, "/index.html"), edge.site(f"http://{host}/../index.html")):
        assert b'"server": "api"' in answer.body


@pytest.mark.parametrize(
    "host", [f"a.site.{DOMAIN}", f"..{DOMAIN}", "site", "evil.example", "notlocalhost", "localhost.evil.example"]
)
def test_other_names_are_unknown_pages(edge: Edge, host: str) -> None:
    """Whatever is asked of them, nothing of the platform answers."""
    for target in ("/index.html", "/static/x", "/cdn/uploads/x", "/internal/x", "/events/x"):
        for answer in (edge.ask(host, target), edge.ask(host, target, "POST")):
            assert (answer.status, PLAIN_404 in answer.body) == (404, True), answer
            assert answer.headers["content-type"] == HTML
            assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("host", [f"SITE.{DOMAIN}", f"Site.{DOMAIN.upper()}", f"site.{DOMAIN}.", f"SITE.{DOMAIN}.:80"])
def test_names_count_in_any_case_and_with_a_dot_at_their_end(edge: Edge, host: str) -> None:
    assert edge.ask(host).body == SITE["index.html"]
    assert edge.ask(host, "/gone").body == OWN_404
    assert edge.ask(host, "/app-B1xYz9aQ.js").body == TEXT + b"old"
    release = edge.ask(
        host.replace("site", "site--r1").replace("Site", "Site--R1").replace("SITE", "SITE--R1"), "/old.txt"
    )
    assert (release.body, release.headers["x-robots-tag"]) == (b"old", "noindex")


SENT_IDS = ["abc-1", "x" * 128, "!~{}$&'()*,;<>?[]^`|#%", "{http.request.host}", '"\\"']


@pytest.mark.parametrize("sent", SENT_IDS)
@pytest.mark.parametrize("target", ["/", "/docs", "/about", "/gone", "/app-B1xYz9aQ.js", "/m.mjs"])
def test_the_callers_id_of_the_request_is_that_of_the_response(edge: Edge, target: str, sent: str) -> None:
    for host in (f"site.{DOMAIN}", f"gone.{DOMAIN}", "unknown.example"):
        for method in ("GET", "HEAD", "POST"):
            assert edge.ask(host, target, method, X_Request_ID=sent).headers["x-request-id"] == sent


@pytest.mark.parametrize("sent", ["", "x" * 129, "a b", "a\tb", "\u00fc"])
def test_a_response_without_an_id_of_its_caller_has_one_of_its_own(edge: Edge, sent: str) -> None:
    found = {edge.site(target, X_Request_ID=sent).headers["x-request-id"] for target in ("/", "/", "/gone", "/docs")}
    assert len(found) == 4
    assert all(len(each) == 36 for each in found)


@pytest.mark.parametrize("host", [f"site.{DOMAIN}:80", f"site.{DOMAIN}:65535"])
def test_the_port_of_a_host_does_not_count(edge: Edge, host: str) -> None:
    assert edge.ask(host).body == SITE["index.html"]


def test_each_kept_release_has_an_address_of_its_own(edge: Edge) -> None:
    old = edge.ask(f"site--r1.{DOMAIN}", "/old.txt")
    assert (old.status, old.body, old.headers["x-robots-tag"]) == (200, b"old", "noindex")
    missing = edge.ask(f"site--r2.{DOMAIN}", "/old.txt")
    assert (missing.status, missing.body, missing.headers["x-robots-tag"]) == (404, OWN_404, "noindex")
    assert edge.ask(f"site--r2.{DOMAIN}", "/app-B1xYz9aQ.js").status == 404
    assert "x-robots-tag" not in edge.site().headers


@pytest.mark.parametrize(
    ("slug", "target", "headers", "status"),
    [
        ("spa", "/users/7", HTML_WANTED, 200),
        ("spa", "/v1.2/users", HTML_WANTED, 200),
        ("spa", "/users/", HTML_WANTED, 200),
        ("spa", "/users/7", {"Accept": "*/*"}, 404),
        ("spa", "/users/7", {}, 404),
        ("spa", "/users/7", {"Accept": "application/json"}, 404),
        ("spa", "/assets/app-Gone9999.js", HTML_WANTED, 404),
        ("spa", "/gone.png", HTML_WANTED, 404),
        ("spa", "/../x", HTML_WANTED, 200),
        ("site", "/users/7", HTML_WANTED, 404),
        ("bare", "/users/7", HTML_WANTED, 404),
    ],
)
def test_routes_of_a_program_in_the_browser(
    edge: Edge, slug: str, target: str, headers: dict[str, str], status: int
) -> None:
    answer = edge.ask(f"{slug}.{DOMAIN}", target, **headers)
    assert answer.status == status
    assert (answer.body == SPA["index.html"]) == (status == 200)
    if status == 404:
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"])
def test_other_methods_are_refused(edge: Edge, method: str) -> None:
    for target in ("/", "/gone", "/docs"):
        answer = edge.site(target, method)
        assert (answer.status, answer.headers["allow"], answer.body) == (405, "GET, HEAD", b"")


def test_a_page_without_its_name_is_not_found_and_is_back_with_it(edge: Edge) -> None:
    edge.deploy("moved", {"index.html": b"moved"})
    name, new = PageName.slug(DOMAIN, "moved"), PageName.slug(DOMAIN, "renamed")
    edge.store.name_rename("pg_moved", name, new)
    assert [edge.ask(f"{slug}.{DOMAIN}").status for slug in ("moved", "moved--r1", "renamed", "renamed--r1")] == [
        404,
        404,
        200,
        200,
    ]
    edge.store.name_remove("pg_moved", new)
    assert [edge.ask(f"{slug}.{DOMAIN}").status for slug in ("moved", "renamed", "renamed--r1")] == [404, 404, 404]
    edge.store.name_add("pg_moved", new)
    assert edge.ask(f"renamed.{DOMAIN}").body == b"moved"


def test_other_sites_of_the_edge_are_as_before(edge: Edge) -> None:
    assert b'"server": "api"' in edge.ask("127.0.0.1", "/workspace").body
    assert edge.ask("pages.localhost").headers.get("x-content-type-options") is None


def test_files_of_the_store_are_below_public_alone(edge: Edge) -> None:
    release = edge.store.paths.release("pg_site", 2)
    assert {path.name for path in release.iterdir()} == {"public", "served", "manifest.json"}
    assert not list(Path(edge.store.root).rglob("*.new"))


def test_switches_under_load_mix_no_releases(edge: Edge) -> None:
    """Each answer is a whole file of one of the releases, with the tag of that content; none is an error."""
    bodies = [b"one" * 1000, b"two" * 1000]
    for body in bodies:
        edge.deploy("busy", {"index.html": body, "d/index.html": body})
    seen: list[Answer] = []
    ended = threading.Event()

    def visit() -> None:
        while not ended.is_set():
            seen.extend(edge.ask(f"busy.{DOMAIN}", target) for target in ("/", "/d/"))

    clients = [threading.Thread(target=visit) for _ in range(4)]
    for client in clients:
        client.start()
    for number in range(200):
        edge.store.release_publish("pg_busy", 1 + number % 2)
    ended.set()
    for client in clients:
        client.join()
    assert {answer.status for answer in seen} == {200}
    assert {answer.body for answer in seen} == set(bodies)


def test_domains_with_https_are_sites_with_the_operators_certificate(edge: Edge) -> None:
    instance = load_instance(edge.store.root.parent, edge.port)
    urls = "https://{slug}.pages.example.org,https://{slug}.sites.example.net:8443"
    given = {"PLATFORM_BASE_URL": "https://vm.example.org", "PLATFORM_PAGES_URL": urls}
    with pytest.raises(ValueError, match="PLATFORM_PAGES_CERTIFICATE"):
        caddyfile(instance.settings(given), instance.run_dir)
    files = {"PLATFORM_PAGES_CERTIFICATE": "/c.pem", "PLATFORM_PAGES_KEY": "/k.pem"}
    made = caddyfile(instance.settings(given | files), instance.run_dir)
    for site in ("https://*.pages.example.org {", "https://*.sites.example.net:8443 {"):
        assert site in made
    assert made.count("tls /c.pem /k.pem") == 2
    behind = caddyfile(instance.settings({**given, "PLATFORM_BEHIND_PROXY": "true"}), instance.run_dir)
    assert f"http://*.pages.example.org:{instance.port}, http://*.pages.example.org.:{instance.port} {{" in behind
