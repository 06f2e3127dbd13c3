"""A CA that is down, slow, limiting or hostile: the state of the name says so, and nothing else suffers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from certificates import ca, services
from certificates.leases import due_ids
from certificates.models import AcmeAccount, Certificate, OrderAttempt
from certificates.selectors import certificate_states, served_certificate
from certificates.steps import certificate_step
from tests.certificates.fake_ca import FakeCa, open_fake_ca
from tests.certificates.pebble import settings_with
from tests.certificates.rows import certificate_make
from tests.free_ports import free_port

pytestmark = pytest.mark.django_db
NAME = "a.example.org"


@pytest.fixture
def fake(announced: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCa]:
    with open_fake_ca() as made:
        settings_with(monkeypatch, acme_directory=made.directory)
        yield made


def step(name: str = NAME) -> Certificate:
    """One step of a name, whatever its times are."""
    now = timezone.now()
    AcmeAccount.objects.update(paused_until=None)
    Certificate.objects.filter(name=name).update(due_at=now, next_attempt_at=now)
    assert certificate_step(Certificate.objects.get(name=name).pk)
    return Certificate.objects.get(name=name)


def test_a_ca_that_is_down_leaves_a_sentence_and_is_not_asked_for_every_name(
    announced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_with(monkeypatch, acme_directory=f"https://127.0.0.1:{free_port()}/dir")
    certificate_make("served.example.org")
    services.certificate_request([NAME, "b.example.org"])
    for key in due_ids(10):
        certificate_step(key)
    states = certificate_states([NAME, "b.example.org", "served.example.org"])
    assert states[NAME].status == states["b.example.org"].status == "pending"
    assert states[NAME].error.startswith("The CA could not be reached. The next attempt is made after 20")
    assert states["b.example.org"].error == "The certificate authority does not answer at present."
    assert (states["served.example.org"].status, states["served.example.org"].error) == ("active", "")
    assert served_certificate("served.example.org")
    assert not OrderAttempt.objects.exists()


def test_a_name_does_not_wait_for_long_once_the_ca_is_back(announced: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings_with(monkeypatch, acme_directory=f"https://127.0.0.1:{free_port()}/dir")
    services.certificate_request([NAME])
    waits = [(step().next_attempt_at - timezone.now()).total_seconds() for _ in range(12)]
    assert waits[0] < 61
    assert 590 < max(waits) <= 600


def test_a_slow_ca_costs_a_bounded_time(fake: FakeCa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ca, "REQUEST_SECONDS", 0.2)
    fake.answers["/order"] = lambda: (time.sleep(1), (200, {}, b""))[1]
    services.certificate_request([NAME])
    began = time.monotonic()
    row = step()
    assert time.monotonic() - began < 0.9
    assert (row.status, row.order_key is not None) == ("pending", True)
    assert row.error.startswith("The CA did not answer in time.")
    assert row.due_at > timezone.now() + timedelta(seconds=50)


@pytest.mark.parametrize("has_problem", [True, False])
def test_retry_after_is_honoured(fake: FakeCa, has_problem: bool) -> None:
    limit = fake.problem(429, "rateLimited", "too many certificates", Retry_After="7200")
    fake.answers["/order"] = limit if has_problem else (429, {"Retry-After": "7200"}, b"busy")
    services.certificate_request([NAME])
    row = step()
    assert row.next_attempt_at > timezone.now() + timedelta(seconds=7190)
    assert row.status == "pending"
    assert f"The next attempt is made after {row.next_attempt_at:%Y-%m-%d %H:%M} UTC." in row.error
    assert ("too many certificates" in row.error) is has_problem


def test_a_refusal_is_shown_cut_and_clean_and_pauses_grow(fake: FakeCa) -> None:
    fake.answers["/order"] = fake.problem(403, "rejectedIdentifier", "not\n\x00this <b>name</b>\u202e " + 900 * "x")
    services.certificate_request([NAME])
    pauses = []
    for _ in range(4):
        row = step()
        pauses.append(round((row.next_attempt_at - timezone.now()).total_seconds() / 60))
    assert pauses == [1, 2, 4, 8]
    assert row.status == "failed"
    assert row.error.startswith("The CA refused: not this <b>name</b> xxx")
    assert len(row.error) == 400


def test_an_account_that_the_ca_forgot_is_registered_again_with_its_key(fake: FakeCa) -> None:
    fake.answers["/order"] = fake.problem(400, "accountDoesNotExist", "unknown account")
    services.certificate_request([NAME])
    step()
    first = AcmeAccount.objects.get()
    assert first.url == ""
    step()
    assert AcmeAccount.objects.get().key == first.key
    assert fake.asked.count("/account") == 2


def hostile_answers(fake: FakeCa) -> Iterator[tuple[str, Any]]:
    bodies = [b"", b"[]", b"{}", b"null", b"\xff\xfe", b"[" * 30_000, b'{"status": 5}', b"x" * 70_000]
    bodies += [b'{"status": "pending", "authorizations": 7}', b'{"status": "valid", "certificate": {}}']
    for path in ("/dir", "/account", "/order"):
        for body in bodies:
            yield path, (201, {"Content-Type": "application/json", "Location": f"{fake.base}/order/1"}, body)
        yield path, (302, {"Location": "http://169.254.169.254/"}, b"")
        yield path, (500, {}, b"<html>")
        yield path, fake.problem(400, "malformed", {"not": "text"})
        yield path, fake.problem(400, "malformed", None)
    inner = [f"{scheme}://{host}/x" for scheme in ("http", "https", "file") for host in ("10.0.0.1", "localhost:6379")]
    for url in [*inner, "x" * 3000, "//", 5, None]:
        order = {"status": "pending", "authorizations": [url], "finalize": url}
        yield "/order", fake.json(201, order, Location=f"{fake.base}/order/1")
    for token in ("../../x", "a" * 200, ".", "\x00", 5, None, "bm9uY2U"):
        found = {"type": "http-01", "url": f"{fake.base}/chal", "token": token, "status": "pending"}
        yield "/authz", fake.json(200, {"status": "pending", "challenges": [found]})
    yield "/authz", fake.json(200, {"status": "pending", "challenges": []})
    yield "/authz", fake.json(200, {"status": "pending", "challenges": [{"type": "dns-01"}]})
    for chain in (b"", b"garbage", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        yield "/chain", (200, {"Content-Type": "application/pem-certificate-chain"}, chain)


def test_no_answer_of_a_ca_is_more_than_a_sentence(fake: FakeCa, monkeypatch: pytest.MonkeyPatch) -> None:
    services.certificate_request([NAME])
    usual = dict(fake.answers)
    for path, answer in hostile_answers(fake):
        status = {"/authz": "pending", "/chain": "valid"}.get(path, "pending")
        order = {"status": status, "authorizations": [f"{fake.base}/authz"], "certificate": f"{fake.base}/chain"}
        fake.answers.clear()
        fake.answers.update(
            usual | {"/order": fake.json(201, order, Location=f"{fake.base}/order/1")}, **{path: answer}
        )
        OrderAttempt.objects.all().delete()
        AcmeAccount.objects.update(url="")
        Certificate.objects.update(order_key=None, order_url="", error="", status="pending")
        row = step()
        assert row.error.startswith("The CA"), (path, answer)
        assert (row.chain, row.claim) == ("", "")
    assert not any(path.startswith("/chal") for path in fake.asked)


@pytest.mark.parametrize(
    "place", ["http://127.0.0.1:9/x", "https://127.0.0.1:9/x", "file:///etc/passwd", "https://[::1]/"]
)
@pytest.mark.parametrize("resource", ["newNonce", "newAccount", "newOrder"])
def test_a_directory_leads_to_no_other_inner_address(fake: FakeCa, resource: str, place: str) -> None:
    directory = json.loads(fake.answers["/dir"][2])  # type: ignore[index]
    fake.answers["/dir"] = fake.json(200, directory | {resource: place})
    services.certificate_request([NAME])
    # Without a nonce of another answer newNonce is asked.
    usual = fake.answers["/account"]
    fake.answers["/account"] = (usual[0], {**usual[1], "Replay-Nonce": ""}, usual[2])  # type: ignore[index]
    row = step()
    assert row.error.startswith(("The CA sent an address that is not its own.", "The CA's answer was not valid."))


def test_a_directory_that_is_no_address_leaves_a_sentence(announced: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings_with(monkeypatch, acme_directory="https://user:secret@ca.example/dir")
    services.certificate_request([NAME])
    row = step()
    assert (row.status, row.claim) == ("pending", "")
    assert row.error.startswith("PLATFORM_ACME_DIRECTORY is not a URL that can be used.")
    assert "secret" not in row.error


def test_a_private_key_in_a_chain_is_not_stored() -> None:
    row = certificate_make(NAME)
    from certificates.keys import check_chain, new_key

    checked = check_chain(f"{new_key()}{row.chain}text", NAME, row.key, timezone.now())
    assert checked.pem == row.chain


def test_the_sentence_of_the_library_s_errors_has_no_address() -> None:
    from certificates.ca_errors import ca_error_of

    assert str(ca_error_of(ValueError("http://10.0.0.1/secret"))) == "The CA's answer was not valid."
    assert json.dumps(str(ca_error_of(KeyError("x"), 502))) == '"The CA failed with status 502."'
