"""What `make doctor` says of the domain of pages."""

from __future__ import annotations

import pytest

from pages.doctor import doctor_lines, domain_line


@pytest.mark.parametrize(
    ("platform", "pages", "separate"),
    [
        ("https://vm.example.org", "https://{slug}.pages.example.org", False),
        ("https://example.co.uk", "https://{slug}.example.co.uk", False),
        ("https://vm.example.org:8443", "https://{slug}.example.org:8443", False),
        ("https://vm.example.org", "https://{slug}.example-pages.org", True),
        ("https://vm.example.co.uk", "https://{slug}.pages.co.uk", True),
        # A domain on the list of public suffixes: each site is a domain of its own.
        ("https://api.github.io", "https://{slug}.github.io", True),
        ("http://127.0.0.1:8000", "http://{slug}.pages.localhost:8000", True),
        ("http://localhost:8000", "http://{slug}.pages.localhost:8000", True),
    ],
)
def test_a_shared_registrable_domain_is_a_warning(platform: str, pages: str, separate: bool) -> None:
    _, found, message, fix = domain_line(platform, ("http://{slug}.other.invalid", pages))
    assert (found, bool(fix)) == (separate, not separate)
    named = "does not share a registrable domain" if separate else pages.partition(".")[2].partition(":")[0]
    assert named in message


def test_the_default_settings_are_no_finding() -> None:
    assert [found for _, found, _, _ in doctor_lines()] == [True]
