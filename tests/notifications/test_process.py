"""The process `push`: what it loads and the others do not, its start and end, its doctor's lines and its page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.fernet import Fernet, MultiFernet
from django.conf import LazySettings
from django.test import Client

from common import secrets_at_rest
from notifications import process
from notifications.doctor import doctor_lines
from notifications.models import VapidKey
from notifications.vapid import vapid_public_key
from tests.callers import Caller
from tests.notifications.browsers import PushService
from tests.notifications.google import Google
from tests.notifications.rows import fcm_device, web_device
from tests.notifications.senders import Sender, by_code, counts
from tests.threads import wait_until
from tests.world import assert_error

LIBRARIES = ("firebase_admin", "pywebpush", "py_vapid", "google.auth", "aiohttp", "grpc")
LOADED = f"""
import sys
import django
django.setup()
from django.urls import get_resolver
get_resolver().url_patterns
import config.celery
config.celery.app.loader.import_default_modules()
import notifications.admin, notifications.doctor, notifications.process, notifications.tasks
print(*[name for name in {LIBRARIES!r} if name in sys.modules])
"""


def test_no_other_process_loads_the_libraries_of_the_providers() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout.split() == []


def environment() -> dict[str, str]:
    import os

    root = Path(__file__).parent.parent.parent
    return {**os.environ, "PYTHONPATH": f"{root}:{root / 'platform'}", "DJANGO_SETTINGS_MODULE": "config.settings"}


@pytest.mark.django_db(transaction=True)
def test_the_process_sends_from_its_start_to_its_end(sender: Sender, browsers: PushService) -> None:
    web_device(sender.account, "browser", browsers.subscriber("tab"))
    process.PROCESS.begin()
    try:
        assert counts(sender.send()) == (1, 0, 1)
    finally:
        process.PROCESS.end_soon()
        process.PROCESS.end()
    process.PROCESS.wake()
    wait_until(lambda: browsers.arrived["tab"])


@pytest.mark.django_db(transaction=True)
def test_with_a_lost_key_every_device_fails_and_says_so(
    sender: Sender, browsers: PushService, phones: Google, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was stored before: the key pair, and one device. A send of now is readable."""
    vapid_public_key()
    fcm_device(sender.account, "lost")
    other = MultiFernet([Fernet(Fernet.generate_key())])
    monkeypatch.setattr(secrets_at_rest, "_fernet", lambda: other)
    web_device(sender.account, "browser", browsers.subscriber("tab"))
    sender.token.metadata = {}
    sender.token.save()
    process.PROCESS.begin()
    try:
        answer = sender.send()
    finally:
        process.PROCESS.end()
    assert by_code(answer) == {"third-party-auth-error": 1, "internal-error": 1}
    assert (
        "PLATFORM_SECRET_KEY"
        in {group["code"]: group["message"] for group in answer["errors"]}["messaging/third-party-auth-error"]
    )
    assert [found for _, found, _, _ in doctor_lines()] == [True, False]


def test_the_contact_is_an_address_or_the_host(settings: LazySettings) -> None:
    assert process.push_contact() == "https://127.0.0.1"
    settings.ENV = settings.ENV.model_copy(update={"acme_contact": "a@example.org"})
    assert process.push_contact() == "mailto:a@example.org"
    settings.ENV = settings.ENV.model_copy(update={"push_contact": "p@example.org"})
    assert process.push_contact() == "mailto:p@example.org"


@pytest.mark.django_db
def test_the_doctor_names_what_is_missing(api: Caller, settings: LazySettings, tmp_path: Path) -> None:
    fcm, web_push = doctor_lines()
    assert (fcm[1], web_push[1]) == (True, True)
    assert "FCM is off" in fcm[2]
    fcm_device(api.account, "phone")
    assert (next(doctor_lines())[1], "PLATFORM_FCM_CREDENTIALS is not set" in next(doctor_lines())[2]) == (False, True)
    path = tmp_path / "fcm.json"
    settings.ENV = settings.ENV.model_copy(update={"fcm_credentials": path})
    for text, said in (
        ("", "cannot be read"),
        ("[]", "is not a service account"),
        ('{"project_id": 1}', "client_email"),
    ):
        path.write_text(text)
        _, found, message, fix = next(doctor_lines())
        assert (found, said in message, bool(fix)) == (False, True, True)


@pytest.mark.django_db
def test_the_doctor_accepts_a_service_account(phones: Google) -> None:
    assert [found for _, found, _, _ in doctor_lines()] == [True, True]


@pytest.mark.django_db
def test_the_key_pair_is_one(api: Caller) -> None:
    first = vapid_public_key()
    assert (vapid_public_key(), VapidKey.objects.count()) == (first, 1)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("", "text/html"), ("/page.js", "text/javascript"), ("/worker.js", "text/javascript"), ("/page.css", "text/css")],
)
def test_the_page_has_no_inline_script_and_loads_from_here_alone(name: str, kind: str) -> None:
    answer = Client().get(f"/notifications/browser{name}")
    assert (answer.status_code, answer["Content-Type"].split(";")[0]) == (200, kind)
    policy = dict(part.strip().split(" ", 1) for part in answer["Content-Security-Policy"].split(";"))
    assert (policy["default-src"], policy["script-src"], policy["frame-ancestors"]) == ("'none'", "'self'", "'none'")
    assert "unsafe" not in answer["Content-Security-Policy"]
    assert (answer["X-Content-Type-Options"], answer["X-Frame-Options"]) == ("nosniff", "DENY")
    text = answer.content.decode()
    assert "<script>" not in text
    assert "http:" not in text.replace("http-", "")
    assert "onclick=" not in text


@pytest.mark.parametrize("name", ["none.js", "..", "%2e%2e%2fviews.py", "views.py"])
def test_the_page_has_no_other_files(name: str) -> None:
    assert_error(Client().get(f"/notifications/browser/{name}"), 404, "not_found")
