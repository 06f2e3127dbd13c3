"""Which names may be custom domains, and their one form."""

from __future__ import annotations

from typing import Any

import pytest

from domains.names import NameRefused, custom_name


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("www.Example.COM.", "www.example.com"),
        (" example.com ", "example.com"),
        ("m\u00fcnchen.example.com", "xn--mnchen-3ya.example.com"),
        ("xn--mnchen-3ya.example.com", "xn--mnchen-3ya.example.com"),
        ("fa\u00df.example.com", "xn--fa-hia.example.com"),
        ("example\u3002com", "example.com"),
        ("a.co.uk", "a.co.uk"),
        ("me.github.io", "me.github.io"),
        ("1.example.com", "1.example.com"),
    ],
)
def test_a_name_has_one_form(given: str, name: str) -> None:
    assert custom_name(given) == name


@pytest.mark.parametrize(
    "given",
    [
        "", ".", "com", "co.uk", "github.io", "localhost", "a.localhost", "printer.local", "x.internal", "x.onion",
        "192.0.2.1", "[2001:db8::1]", "2001:db8::1", "\uff11\uff12\uff17.0.0.1", "127.1", "0x7f.1", "1.2.3.4.5",
        "a.123",
        "*.example.com", "a..example.com", ".example.com", "-a.example.com", "a-.example.com", "a_b.example.com",
        "a b.example.com", "a/b.example.com", "example.com:80", "https://example.com", "user@example.com", "a\x00.com",
        "a\n.example.com", "../../etc/passwd", "\u2603.example.com", "xn--zz.example.com", "ab--cd.example.com",
        f"{'a' * 64}.example.com", f"{'a.' * 130}example.com", "x" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_domain_of_anybody_is_refused(given: str) -> None:
    with pytest.raises(NameRefused):
        custom_name(given)


@pytest.mark.parametrize(
    "given",
    [
        "vm.platform.example", "a.vm.platform.example", "edge.platform.example", "x.edge.platform.example",
        "cdn.platform.example", "x.cdn.platform.example",
        "apps.example.net", "aaaaaaaaaaaaaaaaaaaa.apps.example.net", "pages.example.net", "mine.pages.example.net",
        "sbx-aaaaaaaaaaaaaaaa.boxes.example.net", "PAGES.example.net.", "other.example.net",
    ],
)  # fmt: skip
def test_names_of_the_platform_are_refused(given: str, env: Any, settings: Any) -> None:
    env(
        public_url="https://{hash}.apps.example.net",
        pages_url=("https://{slug}.pages.example.net",),
        sandbox_url="https://{id}.boxes.example.net",
        edge_host="edge.platform.example",
        cdn_url="https://cdn.platform.example",
    )
    settings.BASE_URL = "https://vm.platform.example"
    settings.ALLOWED_HOSTS = ["other.example.net", "*"]
    with pytest.raises(NameRefused, match="platform"):
        custom_name(given)
    assert custom_name("pages.example.com") == "pages.example.com"
