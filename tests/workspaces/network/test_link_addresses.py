"""Secrets of links in addresses, bearers and cookies: the one form of each that counts, and where an address leads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.conf import settings

from edge.addresses import public_address
from edge.port_links import PARAMETER, without_parameter
from tests.workspaces.network.edge_requests import ask, through_fast_path
from tests.workspaces.network.link_requests import UNKNOWN, by_address, by_bearer, by_cookie, name_of, secret_of
from workspaces.models import Operation, PublicPort
from workspaces.states import Status

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fresh_edge_state")]


def test_the_address_sets_a_cookie_and_leads_on_without_the_secret(private: Callable[..., PublicPort]) -> None:
    port = private(status=Status.SLEEPING)
    secret = secret_of(port, ttl_seconds=600)
    for method in ("GET", "HEAD"):
        answer = ask(name_of(port), **by_address(secret, method, "/a/b"))
        assert (answer.status_code, answer["Location"]) == (303, "/a/b")
        cookie = answer["Set-Cookie"]
        assert cookie.startswith(f"port_link={secret}; ")
        assert {"HttpOnly", "SameSite=Lax", "Path=/"} < set(cookie.split("; "))
        assert not {"Secure", "Domain"} & {part.partition("=")[0] for part in cookie.split("; ")}
        assert 590 <= int(cookie.partition("Max-Age=")[2].partition(";")[0]) <= 600
        assert (answer["Cache-Control"], answer["Referrer-Policy"]) == ("no-store", "no-referrer")
        assert "X-Upstream" not in answer
    assert not Operation.objects.exists(), "the address wakes nothing; the request that follows does"
    assert through_fast_path(name_of(port), **by_address(secret)) == ("404", "")


def test_by_https_the_cookie_is_one_that_no_other_host_can_set(
    private: Callable[..., PublicPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = private()
    secret, https = secret_of(port), {"X_Forwarded_Proto": "https"}
    cookie = ask(name_of(port), **by_address(secret), **https)["Set-Cookie"]
    assert cookie.startswith(f"__Host-port_link={secret}; ")
    assert "Secure" in cookie.split("; ")
    right = by_cookie(secret, name="__Host-port_link")
    assert ask(name_of(port), **right, **https).status_code == 200
    assert ask(name_of(port), **by_cookie(secret), **https).status_code == 401
    assert ask(name_of(port), **right).status_code == 401
    # Behind a proxy that does not tell, the setting does.
    monkeypatch.setattr(settings, "PUBLIC_URL", "https://{hash}.apps.example.org")
    assert public_address(settings.PUBLIC_URL).scheme == "https"
    assert ask(f"{port.hash}.apps.example.org", **right).status_code == 200


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/?{}", "/"),
        ("/a?x=1&{}&y=2", "/a?x=1&y=2"),
        ("/a%2Fb?x=%20+&{}&y=%zz&z", "/a%2Fb?x=%20+&y=%zz&z"),
        ("//evil.example/?{}", "/%2Fevil.example/"),
        ("///evil.example?{}", "/%2F/evil.example"),
        ("/\\evil.example?{}", "/%5Cevil.example"),
        ("/\\/evil.example?{}", "/%5C/evil.example"),
        ("/a#b?{}", "/a%23b"),
        ("/\xff\xe4?{}", "/%FF%E4"),
        ("/?x=//evil.example&{}", "/?x=//evil.example"),
        ("/?%5F%5flin%6b=plk_&x", "/?x"),
        ("/?{}?x=1", "/"),
    ],
)
def test_a_location_stays_on_its_host(target: str, location: str) -> None:
    assert without_parameter(target.replace("{}", f"{PARAMETER}={UNKNOWN}")) == location


def test_a_secret_in_an_address_is_found_however_it_is_encoded(private: Callable[..., PublicPort]) -> None:
    port = private()
    secret = secret_of(port)
    encoded = "".join(f"%{ord(char):02X}" for char in secret)
    for query in (f"%5f_lin%6B={secret}", f"{PARAMETER}={encoded}", f"a=%zz&{PARAMETER}={secret}"):
        assert ask(name_of(port), X_Edge_Address=f"GET /?{query}").status_code == 303


def test_an_address_with_a_secret_never_reaches_the_program(private: Callable[..., PublicPort]) -> None:
    """Also of a visitor who has a cookie, or shows the secret as a bearer as well."""
    port = private()
    secret, other = secret_of(port), secret_of(port)
    one = f"{PARAMETER}={secret}"
    for address in (
        f"POST /?{one}", f"PUT /?{one}", f"OPTIONS /?{one}", f"get /?{one}",
        f"GET http://evil.example/?{one}", f"GET *?{one}",
        f"GET /?{one}&{one}", f"GET /?{one}&{PARAMETER}={other}", f"GET /?{one}&{PARAMETER}=", f"GET /?{PARAMETER}=",
        f"GET /?{PARAMETER}={UNKNOWN}", f"GET /?{PARAMETER}={secret}x", f"GET /?{PARAMETER}[]=&{PARAMETER}=%00",
    ):  # fmt: skip
        for more in ({}, by_cookie(secret), by_bearer(secret)):
            answer = ask(name_of(port), X_Edge_Address=address, **more)
            assert (answer.status_code, "Set-Cookie" in answer) == (401, False), address
            assert through_fast_path(name_of(port), X_Edge_Address=address, **more) == ("404", "")


@pytest.mark.parametrize(
    "shown",
    [
        {"X_Edge_Authorization": "Bearer {0},Basic YTpi"},
        {"X_Edge_Authorization": "Bearer {0},Bearer {0}"},
        {"X_Edge_Authorization": "Basic {0}"},
        {"X_Edge_Authorization": "{0}"},
        {"X_Edge_Authorization": "Bearer\t{0}"},
        {"X_Edge_Authorization": "Bearer {0}x"},
        {"X_Edge_Cookie": "port_link={0}x"},
        {"X_Edge_Cookie": "xport_link={0}"},
        {"X_Edge_Cookie": "PORT_LINK={0}"},
        {"X_Edge_Cookie": "__Host-port_link={0}"},
        {"X_Edge_Cookie": "a=port_link={0}"},
        {"X_Edge_Cookie": 'port_link="{0}"'},
        {"Referer": "http://x/?__link={0}"},
        {"Authorization": "Bearer {0}"},
        {"Cookie": "port_link={0}"},
        {"X_Edge_Address": "GET /{0}"},
        {"X_Edge_Address": "GET /?x=__link={0}"},
        {"X_Edge_Address": "GET /__link={0}"},
    ],
)
def test_only_one_form_of_each_counts(private: Callable[..., PublicPort], shown: dict[str, str]) -> None:
    """Two Authorization headers come joined by a comma. What the edge does not pass on counts for nothing."""
    port = private()
    secret = secret_of(port)
    given = {name: value.replace("{0}", secret) for name, value in shown.items()}
    assert ask(name_of(port), **given).status_code == 401


def test_a_cookie_that_another_page_set_keeps_no_visitor_out(private: Callable[..., PublicPort]) -> None:
    port = private()
    secret = secret_of(port)
    for others in ([UNKNOWN], ["nonsense", ""], [UNKNOWN] * 5):
        assert ask(name_of(port), **by_cookie(*others, secret)).status_code == 200
        assert ask(name_of(port), **by_cookie(secret, *others)).status_code == 200
    assert ask(name_of(port), **by_cookie(*[UNKNOWN] * 5000, secret)).status_code == 401


def test_a_browser_forgets_a_cookie_that_opens_nothing(private: Callable[..., PublicPort]) -> None:
    port = private()
    forgotten = ask(name_of(port), **by_cookie(UNKNOWN))["Set-Cookie"]
    assert forgotten.startswith('port_link=""; ')
    assert "Max-Age=0" in forgotten
    assert "Set-Cookie" not in ask(name_of(port), **by_bearer(UNKNOWN))
    assert "Set-Cookie" not in ask(name_of(port))
