"""A custom domain of a page from its records to its end: a whole instance, a real CA, a name server of the test."""

from __future__ import annotations

import http.client
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from tests.certificates.pebble import Pebble, open_pebble
from tests.clients.cli.runner import Ws
from tests.domains.zone import EDGE, Zone, open_zone
from tests.free_ports import free_port
from tests.vm.client import Api, until
from tests.vm.instances import TestInstance, new_instance

NAME = "shop.example.com"
PORTS = ("PLATFORM_DOMAINS_HTTP_PORT", "PLATFORM_DOMAINS_HTTPS_PORT", "PLATFORM_DOMAINS_KEYS_PORT")


@dataclass
class Platform:
    instance: TestInstance
    ca: Pebble
    zone: Zone
    http_port: int
    https_port: int
    api: Api = field(init=False)

    def __post_init__(self) -> None:
        self.api = self.instance.api()

    def plain(self, host: str, port: int | None = None) -> tuple[int, str, str]:
        """Status, Location and body by HTTP."""
        with closing(http.client.HTTPConnection("127.0.0.1", port or self.http_port, timeout=120)) as connection:
            connection.request("GET", "/", headers={"Host": host})
            answer = connection.getresponse()
            return answer.status, answer.headers.get("Location", ""), answer.read().decode()

    def secure(self, host: str) -> Secure:
        """A new connection, whose certificate is checked. Raises ssl.SSLError."""
        connection = Secure(host, self.https_port, self.ca.root().decode())
        connection.connect()
        return connection


class Secure(http.client.HTTPSConnection):
    """Of a name that no resolver of this host knows: to the edge, with that name in the handshake."""

    def __init__(self, name: str, port: int, authority: str) -> None:
        self._context = ssl.create_default_context(cadata=authority)
        self._name = name
        super().__init__("127.0.0.1", port, timeout=120, context=self._context)

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._context.wrap_socket(self.sock, server_hostname=self._name)

    @property
    def serial(self) -> int:
        found = self.sock.getpeercert(binary_form=True)
        assert found
        return x509.load_der_x509_certificate(found).serial_number

    def read(self) -> tuple[int, str, str]:
        """Status, Location and body of the next request on this connection."""
        self.request("GET", "/", headers={"Host": self._name})
        answer = self.getresponse()
        return answer.status, answer.headers.get("Location", ""), answer.read().decode()


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    zone, ports = Zone(), {name: free_port() for name in PORTS}
    http_port, https_port, _ = ports.values()
    with (
        tempfile.TemporaryDirectory(prefix="pebble-") as folder,
        open_pebble(Path(folder), http_port) as ca,
        open_zone(zone) as resolver,
        new_instance(
            images=False,
            PLATFORM_VM_BACKEND="fake",
            PLATFORM_HOST_NAME="domains",
            PLATFORM_EDGE_HOST=EDGE,
            PLATFORM_DNS_RESOLVERS=resolver,
            PLATFORM_ACME_DIRECTORY=ca.directory,
            PLATFORM_ACME_CA_FILE=str(ca.authority),
            **{name: str(port) for name, port in ports.items()},
        ) as instance,
    ):
        instance.start()
        yield Platform(instance, ca, zone, http_port, https_port)


@pytest.fixture
def page(platform: Platform) -> Iterator[dict[str, Any]]:
    """A live page that says `one`."""
    box = platform.api.create("localhost/tiny:1")["id"]
    site = platform.instance.state / "machines/directories" / box / "disk/site"
    site.mkdir()
    (site / "index.html").write_text("one")
    body = {"workspace_id": box, "path": "/site", "slug": "shop"}
    yield platform.api.call("POST", "/pages", 201, json=body)["page"]
    platform.api.call("DELETE", "/pages/shop")


def test_a_page_has_a_certificate_for_its_domain_without_help_until_it_is_disconnected(
    platform: Platform, page: dict[str, Any]
) -> None:
    api, zone = platform.api, platform.zone
    connect = {"domain": NAME, "include_www": True}
    refused = api.call("POST", "/pages/shop/domain", 400, json=connect)
    assert refused["code"] == "domain_not_verified"
    assert refused["details"]["ownership"]["expected"] == f"verify={page['id']}"
    zone.point(NAME)
    zone.point(f"www.{NAME}")
    zone.prove(NAME, page["id"])
    assert api.call("POST", "/pages/shop/domain/check", json={"domain": NAME})["verified"] is True

    assert api.call("POST", "/pages/shop/domain", json=connect)["ssl"]["status"] in ("pending", "active")
    until(lambda: domain_of(api)["ssl"]["status"] == "active", 60, "the certificates are there")
    assert domain_of(api)["url"] == f"https://{NAME}"
    until(lambda: platform.plain(NAME)[:2] == (308, f"https://{NAME}/"), 20, "HTTP leads to https")
    with closing(platform.secure(NAME)) as former, closing(platform.secure(f"www.{NAME}")) as www:
        assert former.read() == (200, "", "one")
        assert www.read()[0] == 308
        orders = platform.ca.orders()
        api.call("POST", "/pages/shop/domain/ssl/renew")
        until(lambda: serial_at(platform) != former.serial, 60, "the renewed certificate is served")
        assert platform.ca.orders() == orders + 2
        # What was open before goes on.
        assert former.read() == (200, "", "one")

    api.call("DELETE", "/pages/shop/domain")
    assert api.call("GET", "/pages/shop/domain")["domain"] is None
    assert platform.plain(NAME)[0] == 404
    assert is_refused(platform, NAME)


def test_a_domain_that_is_disabled_or_gone_is_an_unknown_page_at_every_port(
    platform: Platform, page: dict[str, Any]
) -> None:
    name, api = "off.example.com", platform.api
    platform.zone.point(name)
    platform.zone.prove(name, page["id"])
    ports = (platform.http_port, platform.instance.instance.port)
    unknown = (404, "", platform.plain("gone.pages.localhost", platform.instance.instance.port)[2])

    def answers() -> set[tuple[int, str, str]]:
        return {platform.plain(host, port) for host in (name, name.upper(), f"{name}.") for port in ports}

    assert "There is no page" in unknown[2]
    assert answers() == {unknown}
    api.call("POST", "/pages/shop/domain", json={"domain": name})
    until(lambda: answers() == {(308, f"https://{name}/", "")}, 60, "the domain is served")
    with closing(platform.secure(name)) as connection:
        assert connection.read() == (200, "", "one")
    api.call("POST", "/pages/shop/disable")
    until(lambda: answers() == {unknown}, 20, "the domain is not served")
    api.call("POST", "/pages/shop/enable")
    until(lambda: answers() == {(308, f"https://{name}/", "")}, 20, "the domain is served again")
    api.call("DELETE", "/pages/shop/domain")
    until(lambda: answers() == {unknown}, 20, "the domain is gone")


def test_a_name_that_is_not_connected_ends_in_the_handshake_and_is_not_ordered(platform: Platform) -> None:
    orders = platform.ca.orders()
    for name in ("other.example.com", "a.b.c.example.org", EDGE):
        assert is_refused(platform, name)
        assert platform.plain(name)[0] == 404
    assert platform.ca.orders() == orders


def test_the_command_line_connects_a_domain_and_waits_for_its_certificate(
    platform: Platform, page: dict[str, Any], tmp_path: Path
) -> None:
    ws = Ws(tmp_path)
    ws.output("login", "--file", platform.instance.instance.credentials_file)
    name = "cli.example.com"
    assert f"verify={page['id']}" in ws.fails(5, "pages", "domain", "add", "shop", name)
    assert f"_platform.{name}" in ws.run("pages", "domain", "check", "shop", name).stdout
    platform.zone.point(name)
    platform.zone.prove(name, page["id"])
    ws.output("pages", "domain", "check", "shop", name)
    done = ws.run("pages", "domain", "add", "--wait", "--timeout", "60", "shop", name)
    assert (done.exit_code, done.stdout) == (0, f"https://{name}\n"), done.output
    assert "certificate active" in done.stderr
    assert [row["page"] for row in ws.json("pages", "domain", "list")] == ["shop"]
    ws.output("pages", "domain", "rm", "-y", "shop")
    assert "No domain" in ws.fails(4, "pages", "domain", "show", "shop")
    port = ("port", "domain", "add", "8080", name, page["source_workspace_id"])
    assert "Error: " in ws.fails(4, *port)


def domain_of(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = api.call("GET", "/pages/shop/domain")["domain"]
    return found


def serial_at(platform: Platform) -> int:
    with closing(platform.secure(NAME)) as connection:
        return connection.serial


def is_refused(platform: Platform, name: str) -> bool:
    try:
        platform.secure(name).close()
    except (ssl.SSLError, ConnectionError):
        return True
    return False
