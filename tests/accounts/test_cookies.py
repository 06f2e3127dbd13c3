"""Names and scope of the platform's cookies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

PROGRAM = """
import json, django
django.setup()
from django.conf import settings as s
from accounts.login import COOKIE
print(json.dumps([[s.SESSION_COOKIE_NAME, s.CSRF_COOKIE_NAME, COOKIE],
    s.SESSION_COOKIE_SECURE and s.CSRF_COOKIE_SECURE, [s.SESSION_COOKIE_DOMAIN, s.CSRF_COOKIE_DOMAIN],
    [s.SESSION_COOKIE_PATH, s.CSRF_COOKIE_PATH]]))
"""


def test_over_https_no_site_below_the_same_domain_can_set_them(tmp_path: Path) -> None:
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("PLATFORM_")},
        "PLATFORM_BASE_URL": "https://vm.example.org",
        "PLATFORM_STATE": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    names, secure, domains, paths = json.loads(done.stdout)
    # What browsers demand for this prefix.
    assert names == ["__Host-sessionid", "__Host-csrftoken", "__Host-known_browser"]
    assert (secure, domains, paths) == (True, [None, None], ["/", "/"])


@pytest.mark.django_db
def test_every_cookie_of_a_login_is_for_the_whole_host(admin_user: object) -> None:
    client = Client()
    client.get("/admin/login/")
    client.post("/admin/login/", {"username": "admin", "password": "password"})
    assert set(client.cookies) == {settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME, "known_browser"}
    assert {(morsel["path"], morsel["domain"]) for morsel in client.cookies.values()} == {("/", "")}
