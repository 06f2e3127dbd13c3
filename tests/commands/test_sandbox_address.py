"""The template of sandbox addresses."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from config.checks import machine_names_are_served
from config.env import load_settings
from edge.addresses import SandboxAddress

ID = "sbx_2345abcd2345abcd"


@pytest.mark.parametrize(
    ("template", "url"),
    [
        ("http://127.0.0.1:8000/s/{id}", f"http://127.0.0.1:8000/s/{ID}"),
        ("https://vm.example.org/api/s/{id}", f"https://vm.example.org/api/s/{ID}"),
        ("http://[::1]:8000/s/{id}", f"http://[::1]:8000/s/{ID}"),
        ("https://{id}.apps.example.org", "https://sbx-2345abcd2345abcd.apps.example.org"),
        ("http://{id}.localhost:8000", "http://sbx-2345abcd2345abcd.localhost:8000"),
    ],
)
def test_an_address_is_made_of_the_template(template: str, url: str) -> None:
    assert SandboxAddress.of(template).url(ID) == url


@pytest.mark.parametrize(
    "template",
    ["https://vm.example.org", "https://{id}.apps.example.org/", "https://{id}.apps.example.org/{id}", "https://{id}",
     "https://vm.example.org/{id}/s", "https://vm.example.org/s/{id}/", "https://a {id}.org", "{id}"],
)  # fmt: skip
def test_other_templates_are_refused_at_the_start(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLATFORM_SANDBOX_URL", template)
    with pytest.raises(ImproperlyConfigured, match="PLATFORM_SANDBOX_URL"):
        load_settings()


def test_by_default_it_is_a_path_below_the_base_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLATFORM_BASE_URL", "https://vm.example.org/")
    monkeypatch.setenv("PLATFORM_SANDBOX_URL", "")
    assert load_settings().sandbox_url == "https://vm.example.org/s/{id}"


def test_names_that_the_edge_does_not_serve_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine_names_are_served(None) == []
    monkeypatch.setattr(settings.ENV, "public_url", "https://{hash}.apps.example.org")
    monkeypatch.setattr(settings.ENV, "sandbox_url", "https://{id}.sandboxes.example.org")
    assert [found.id for found in machine_names_are_served(None)] == ["platform.E009"]
    monkeypatch.setattr(settings.ENV, "sandbox_url", "https://{id}.apps.example.org")
    assert machine_names_are_served(None) == []
