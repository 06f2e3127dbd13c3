"""What `make doctor` says of the host and the store of the CDN."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from django.conf import settings

from cdn.delivery_doctor import delivery_lines, host_line
from config.env import Env


@pytest.mark.parametrize(
    ("platform", "cdn", "is_right"),
    [
        ("https://vm.example.org", "https://cdn.example.org", True),
        ("http://127.0.0.1:8000", "http://cdn.localhost:8000", True),
        ("https://cdn.example.org", "https://cdn.example.org", False),
        ("https://vm.example.org", "http://cdn.pages.localhost:8000", True),
        ("https://vm.example.org", "http://files.pages.localhost:8000", False),
        ("https://vm.example.org", "http://aaaaabbbbbcccccddddd.localhost:8000", False),
    ],
)
def test_a_name_that_something_else_has_is_a_finding(platform: str, cdn: str, is_right: bool) -> None:
    _, found, message, fix = host_line(platform, cdn)
    assert (found, bool(fix)) == (is_right, not is_right)
    assert message


def test_the_default_settings_are_no_finding() -> None:
    assert [found for _, found, _, _ in delivery_lines()] == [True, True]


def test_a_store_that_cannot_be_written_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "cdn").mkdir()
    (tmp_path / "cdn/store").write_bytes(b"no folder")
    with patch.object(settings, "STATE", tmp_path):
        _, found, message, fix = list(delivery_lines())[1]
    assert (found, "exists" in message, "STATE/cdn" in fix) == (False, True, True)
    given = {"PLATFORM_CDN_S3_BUCKET": "files", "PLATFORM_CDN_S3_ENDPOINT": "http://127.0.0.1:9"}
    env = Env.from_environment(settings.ENV.variables() | given)
    with patch.object(settings, "ENV", env), patch("cdn.storage.s3._ATTEMPTS", 1):
        _, found, message, fix = list(delivery_lines())[1]
    assert (found, "PLATFORM_CDN_S3" in fix, "files cannot be read" in message) == (False, True, True)


@pytest.mark.parametrize(
    "given",
    [
        {"PLATFORM_CDN_URL": "https://cdn.example.org/path"},
        {"PLATFORM_CDN_URL": "cdn.example.org"},
        {"PLATFORM_CDN_URL": "https://CDN.example.org"},
        {"PLATFORM_CDN_S3_BUCKET": "files"},
        {"PLATFORM_CDN_S3_BUCKET": "Not A Bucket"},
        {"PLATFORM_CDN_S3_PREFIX": "../x"},
    ],
)
def test_settings_that_cannot_be_used_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(Exception, match="PLATFORM_CDN_"):
        Env.from_environment(given)
