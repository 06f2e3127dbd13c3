"""Addresses of public ports, and invalid settings of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from config.checks import settings_fit_together
from config.env import load_settings
from edge.addresses import PublicAddress, label, public_address
from supervise.instance import load_instance

HASH = "abcdefghij234567klmn"


@pytest.mark.parametrize(
    ("template", "domain", "url"),
    [
        ("https://{hash}.apps.example.org", f"{HASH}.apps.example.org", f"https://{HASH}.apps.example.org"),
        ("http://{hash}.localhost:8000", f"{HASH}.localhost", f"http://{HASH}.localhost:8000"),
    ],
)
def test_a_template_gives_domain_and_address(template: str, domain: str, url: str) -> None:
    address = public_address(template)
    assert (address.domain(HASH), address.url(HASH)) == (domain, url)
    assert address.label_of(domain) == ("", HASH)
    assert address.label_of(address.domain(label("my-app", HASH))) == ("my-app", HASH)


@pytest.mark.parametrize(
    "template",
    [
        "https://apps.example.org",
        "https://{hash}",
        "https://x-{hash}.example.org",
        "https://a.{hash}.example.org",
        "https://{hash}.example.org/path",
        "ftp://{hash}.example.org",
        "https://{hash}.Example.org",
        "https://{hash}.example.org\n",
        "https://{hash}.example.org {",
    ],
)
def test_an_invalid_url_template_stops_the_process(monkeypatch: pytest.MonkeyPatch, template: str) -> None:
    with pytest.raises(ValueError, match="Give an address"):
        PublicAddress.of(template)
    monkeypatch.setenv("PLATFORM_PUBLIC_URL", template)
    with pytest.raises(ImproperlyConfigured, match="PLATFORM_PUBLIC_URL"):
        load_settings()


def test_no_template_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="Give an address"):
        PublicAddress.of("")
    monkeypatch.setenv("PLATFORM_PUBLIC_URL", "")
    assert PublicAddress.of(load_settings().public_url), "an empty setting is the default"


def test_the_base_url_is_not_within_the_public_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BASE_URL", "https://api.apps.example.org")
    monkeypatch.setattr(settings.ENV, "public_url", "https://{hash}.apps.example.org")
    assert "platform.E007" in {found.id for found in settings_fit_together(None)}
    monkeypatch.setattr(settings, "BASE_URL", "https://example.org")
    assert "platform.E007" not in {found.id for found in settings_fit_together(None)}


def test_an_instance_publishes_below_localhost_on_its_own_port(tmp_path: Path) -> None:
    values = load_instance(tmp_path / "a", 8001).settings({})
    assert values.public_url == "http://{hash}.localhost:8001"
