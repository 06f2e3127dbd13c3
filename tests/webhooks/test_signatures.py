"""What signs a delivery, as the public library of Standard Webhooks and a receiver by hand verify it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from itertools import pairwise

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from webhooks.signatures import signature_headers, signing_key

BODY = '{"id":"evt_1","data":{"name":"Zoë"}}'.encode()
MADE = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(b"another key of receivers").decode()
CHOSEN = "a secret that its owner chose"


def headers(*secrets: str, at: float | None = None) -> dict[str, str]:
    moment = int(time.time() if at is None else at)
    return signature_headers(event_id="evt_1", timestamp=moment, body=BODY, secrets=secrets)


def test_the_public_library_verifies_a_delivery() -> None:
    assert Webhook(MADE).verify(BODY, headers(MADE))["id"] == "evt_1"
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(BODY, headers(MADE))
    with pytest.raises(WebhookVerificationError):
        Webhook(MADE).verify(BODY + b" ", headers(MADE))
    with pytest.raises(WebhookVerificationError):
        Webhook(MADE).verify(BODY, headers(MADE) | {"webhook-id": "evt_2"})


def test_the_time_of_the_attempt_is_signed() -> None:
    with pytest.raises(WebhookVerificationError, match="too old"):
        Webhook(MADE).verify(BODY, headers(MADE, at=time.time() - 3600))


def test_a_secret_that_its_owner_chose_is_the_key_as_it_is() -> None:
    assert Webhook(CHOSEN.encode()).verify(BODY, headers(CHOSEN))


def test_both_keys_sign_in_the_grace_of_a_rotation() -> None:
    sent = headers(MADE, OTHER)
    assert Webhook(MADE).verify(BODY, sent)
    assert Webhook(OTHER).verify(BODY, sent)
    assert len(sent["webhook-signature"].split(" ")) == 2


@pytest.mark.parametrize("secret", [MADE, CHOSEN])
def test_the_platforms_own_header_is_the_body_signed_by_the_characters_of_the_secret(secret: str) -> None:
    sent = headers(secret, OTHER)
    assert sent["X-Webhook-Signature"] == hmac.new(secret.encode(), BODY, hashlib.sha256).hexdigest()
    assert sent["X-Webhook-Id"] == sent["webhook-id"] == "evt_1"


@pytest.mark.parametrize(
    ("secret", "key"),
    [
        (MADE, bytes(range(32))),
        (MADE.rstrip("="), bytes(range(32))),
        ("whsec_not base64!", b"whsec_not base64!"),
        ("whsec_", b"whsec_"),
        ("whsec_a", b"whsec_a"),
        ("bm8gcHJlZml4", b"bm8gcHJlZml4"),
        ("schlüssel", "schlüssel".encode()),
    ],
)
def test_the_key_of_a_secret(secret: str, key: bytes) -> None:
    assert signing_key(secret) == key


def test_different_bodies_have_different_signatures() -> None:
    bodies = [b"{}", b"{} ", b'{"a":1}']
    sent = [signature_headers(event_id="e", timestamp=1, body=body, secrets=[MADE]) for body in bodies]
    assert all(one["webhook-signature"] != other["webhook-signature"] for one, other in pairwise(sent))
