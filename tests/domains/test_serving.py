"""Custom domains at a real edge: pages and ports of workspaces, `www`, certificates, and Host headers of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from edge.domain_files import DomainFiles, link_kind, link_page
from pages.releases.store import PageStore
from pages.releases.store_paths import PageName
from supervise.instance import load_instance
from tests.commands.conftest import short_folder
from tests.commands.machines import World, open_world, receive, websocket
from tests.free_ports import free_port
from tests.pages.archives import archive_of
from tests.pages.edge_site import PLAIN_404, Answer, Edge
from tests.pages.stores import TEXT, release_make

PAGE, APP = "www.shop.example", "app.example.com"
FILES = {"index.html": b"<h1>shop</h1>", "404.html": b"own 404", "static/a.txt": b"a", "app-C2xYz9aQ.js": TEXT}


@dataclass
class Names:
    """`plain`: the edge's port of the platform's own site. `custom`: its port for custom domains alone."""

    world: World
    plain: Edge
    custom: Edge
    files: DomainFiles

    def page(self, name: str = PAGE, target: str = "/", **headers: str) -> Answer:
        return self.plain.ask(name, target, **headers)


@pytest.fixture(scope="module")
def shared_names() -> Iterator[Names]:
    with short_folder() as folder:
        instance = load_instance(folder / "edge", free_port())
        (instance.state / "secret.txt").write_text("of the host")
        ports = {"PLATFORM_DOMAINS_HTTP_PORT": str(free_port()), "PLATFORM_DOMAINS_HTTPS_PORT": str(free_port())}
        with open_world(instance, ports) as world:
            store = PageStore(instance.state / "pages")
            custom = Edge(int(ports["PLATFORM_DOMAINS_HTTP_PORT"]), store)
            yield Names(world, Edge(instance.port, store), custom, DomainFiles(instance.state))


@pytest.fixture
def names(shared_names: Names) -> Names:
    """A page under PAGE, a port under APP, and `www.` of both a page and a port."""
    shared_names.world.reset()
    files = shared_names.files
    for name in files.links():
        files.link_set(name, None)
        files.set_tls(name, present=False)
    if not shared_names.plain.deployed:
        shared_names.plain.deploy("shop", FILES | {"app-B1xYz9aQ.js": TEXT + b"old"})
        shared_names.plain.deploy("shop", FILES)
    files.link_set(PAGE, link_page("pg_shop"))
    files.link_set("apex.example.net", link_page("pg_shop"))
    files.link_set("www.apex.example.net", link_kind("www"))
    files.link_set(APP, link_kind("port"))
    return shared_names


def test_a_page_is_served_by_files_alone(names: Names) -> None:
    for edge in (names.plain, names.custom):
        assert edge.ask(PAGE).body == FILES["index.html"]
        assert edge.ask(PAGE, "/static/a.txt").body == b"a"
        assert edge.ask(PAGE, "/app-B1xYz9aQ.js").body == TEXT + b"old", "a chunk of the release before"
        missing = edge.ask(PAGE, "/gone")
        assert (missing.status, missing.body) == (404, FILES["404.html"])
        assert edge.ask(PAGE, "/", "POST").status == 405
        assert edge.ask(PAGE, "/internal/edge/port").status == 404
        tag = edge.ask(PAGE).headers["etag"]
        assert edge.ask(PAGE, If_None_Match=tag).status == 304
    assert names.world.platform.requests == []


@pytest.mark.parametrize("host", [f"{PAGE}:8000", f"{PAGE}.", f"{PAGE}.:80", PAGE.upper(), "Www.Shop.Example.:80"])
def test_case_port_and_dot_of_a_host_do_not_matter(names: Names, host: str) -> None:
    for edge in (names.plain, names.custom):
        assert edge.ask(host).body == FILES["index.html"]


def test_connecting_and_disconnecting_take_effect_at_once(names: Names) -> None:
    for number in range(5):
        name = f"n{number}.example.org"
        assert names.custom.ask(name).status == 404
        names.files.link_set(name, link_page("pg_shop"))
        assert names.custom.ask(name).body == FILES["index.html"]
        names.files.link_set(name, None)
        assert (names.custom.ask(name).status, names.custom.ask(name).body.count(PLAIN_404)) == (404, 1)


def test_an_unknown_host_is_an_unknown_page(names: Names) -> None:
    unknown = names.custom.ask("unknown.example.org")
    assert (unknown.status, unknown.headers["cache-control"]) == (404, "no-store")
    plain = names.plain.ask("unknown.example.org")
    for answer in (unknown, plain):
        answer.headers.pop("date")
        answer.headers.pop("x-request-id")
    assert plain == unknown
    assert names.world.platform.requests == []


def test_a_name_of_a_page_that_is_gone_or_has_no_release_is_unknown(names: Names) -> None:
    names.files.link_set("gone.example.org", link_page("pg_gone"))
    assert names.custom.ask("gone.example.org").status == 404
    (names.plain.store.paths.page("pg_empty")).mkdir(exist_ok=True)
    names.files.link_set("empty.example.org", link_page("pg_empty"))
    assert names.custom.ask("empty.example.org").status == 404
    assert names.plain.ask("empty.example.org").status == 404


def test_www_leads_to_the_name_and_the_name_to_itself(names: Names) -> None:
    for edge in (names.plain, names.custom):
        for target in ("/", "/a?b=c&d=%2f", "//evil.example/x", "/%2e%2e/"):
            moved = edge.ask("www.apex.example.net", target)
            assert (moved.status, moved.headers["location"]) == (308, f"//apex.example.net{target}")
        assert edge.ask("www.apex.example.net:8080").headers["location"] == "//apex.example.net:8080/"
        assert edge.ask("apex.example.net").status == 200
    assert names.custom.ask("www.www.apex.example.net").status == 404


def test_plain_http_leads_to_https_once_there_is_a_certificate(names: Names) -> None:
    names.files.set_tls(PAGE, present=True)
    for edge in (names.plain, names.custom):
        for method in ("GET", "POST", "HEAD"):
            moved = edge.ask(f"{PAGE}:81", "/a?b", method)
            assert (moved.status, moved.headers["location"]) == (308, f"https://{PAGE}/a?b")
        assert edge.ask("apex.example.net").status == 200
        moved = edge.ask("www.apex.example.net")
        assert moved.headers["location"] == "//apex.example.net/"
    names.files.set_tls(PAGE, present=False)
    assert names.custom.ask(PAGE).status == 200


def test_a_port_is_found_by_a_question_to_the_platform(names: Names) -> None:
    sent = {"X-Client-ID": "c", "X-Client-Secret": "s", "X-Edge": "lie", "X-Forwarded-For": "9.9.9.9", "Cookie": "a=b"}
    seen = names.world.send("POST", "/static/x?y", host=APP, headers=sent, content=b"body").json()
    assert (seen["method"], seen["path"], seen["size"]) == ("POST", "/static/x?y", 4)
    head = seen["headers"]
    assert (head["host"], head["cookie"], head["x-forwarded-for"]) == (APP, "a=b", "127.0.0.1")
    assert not [name for name in head if name.startswith(("x-edge", "x-client-"))]
    ((path, headers, body),) = names.world.platform.requests_of("api")
    assert (path, body) == ("/internal/edge/port", "")
    assert headers["x-edge"].split()[1] == APP


def test_a_sleeping_workspace_is_woken_and_its_sockets_work(names: Names) -> None:
    names.world.platform.answers["api"] = (202, {})
    names.world.platform.answers["streams"] = (200, {"X-Upstream": names.world.machine})
    assert names.world.send("GET", host=APP).json()["path"] == "/"
    assert [path for path, _, _ in names.world.platform.requests_of("streams")] == ["/internal/edge/wake"]
    with websocket(names.world, APP) as connection:
        connection.sendall(b"one")
        assert receive(connection, 3) == b"one"


def test_errors_of_a_port_are_those_of_public_ports(names: Names) -> None:
    names.world.platform.answers["api"] = (503, {"Retry-After": "2"})
    refused = names.world.send("GET", host=APP)
    assert (refused.status_code, refused.text) == (503, "the platform's own answer")
    names.world.platform.answers["api"] = (200, {"X-Upstream": "127.0.0.1:1"})
    closed = names.world.send("GET", host=APP)
    assert (closed.status_code, closed.json()["code"]) == (502, "port_closed")
    assert "text/html" in names.world.send("GET", host=APP, headers={"Accept": "text/html"}).headers["content-type"]
    with names.world.without("api"):
        assert names.world.send("GET", host=APP).json()["code"] == "service_unavailable"


@pytest.mark.parametrize(
    "host",
    [
        "..", "../by-name/" + PAGE, f"{PAGE}/..", f"./{PAGE}", f"..{PAGE}", f".{PAGE}", f"{PAGE}..",
        "www.shop.exampl*", "www.shop.exampl?", "www.[s]hop.example", "www.{shop,x}.example", f"\\{PAGE}", f"{PAGE}%00",
        f"%77{PAGE[1:]}", "by-name", "kinds", "port.port", "..%2fby-name", "{http.vars.custom_name}", "{env.HOME}",
        f"{PAGE}@evil.example", f"evil.example@{PAGE}", f"{PAGE}:80:80", f"{PAGE}:999999", f"{PAGE} x", f"{PAGE}\tx",
        "a." * 126 + "ab", "a" * 300 + ".example", "*", "", "[::1]", "\u00fc.example",
    ],
)  # fmt: skip
def test_only_the_plain_name_itself_reaches_a_page(names: Names, host: str) -> None:
    """Nothing of the store, of the host or of the page is shown for any other host."""
    for edge in (names.plain, names.custom):
        for target in ("/", "/../../secret.txt", "/current/public/index.html"):
            found = edge.ask(host, target)
            assert found.status in (400, 404, 200), found
            assert FILES["index.html"] not in found.body
            assert b"of the host" not in found.body
            assert "location" not in found.headers


def test_links_of_names_lead_nowhere_else(names: Names) -> None:
    """The edge follows a link of the platform's; what is served is below `current/public` of it."""
    for path in ("/../manifest.json", "/%2e%2e/manifest.json", "/..%2fmanifest.json", "/.././../../by-id/pg_shop"):
        found = names.page(target=path)
        assert (found.status, found.body) == (404, FILES["404.html"]) or found.status == 400


def test_the_platforms_own_name_is_never_a_custom_domain(names: Names) -> None:
    """Also where a row has it, as after a change of the settings."""
    own = names.world.base.removeprefix("http://").partition(":")[0]
    names.files.link_set(own, link_page("pg_shop"))
    names.world.platform.answers["api"] = (404, {})
    assert names.plain.ask(own).body == b"the platform's own answer"


def test_rules_of_a_page_are_asked_with_its_custom_domain(names: Names) -> None:
    release_make(names.plain.store, "pg_ruled", 1, archive_of({"index.html": b"x", "_redirects": b"/a /b"}))
    names.plain.store.release_publish("pg_ruled", 1)
    names.plain.store.name_add("pg_ruled", PageName.slug("pages.localhost", "ruled"))
    names.files.link_set("ruled.example.org", link_page("pg_ruled"))
    names.world.platform.answers["api"] = (302, {"Location": "/b"})
    moved = names.custom.ask("ruled.example.org", "/a")
    assert (moved.status, moved.headers["location"]) == (302, "/b")
    ((path, headers, _),) = names.world.platform.requests_of("api")
    assert (path, headers["x-edge"].split()[1]) == ("/internal/edge/page-redirect", "ruled.example.org")
