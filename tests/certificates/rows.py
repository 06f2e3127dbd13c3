"""Rows as they are once a CA has answered, without one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from certificates.keys import key_from_pem, new_key
from certificates.models import Certificate
from certificates.outcomes import renewal_time


@lru_cache(maxsize=8)
def self_signed(name: str, days: int = 90) -> tuple[str, str, datetime, datetime]:
    """Certificate and key (PEM), and the certificate's times."""
    key = new_key()
    begin = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)
    end = begin + timedelta(days=days)
    return certificate_pem(name, key, begin, end), key, begin, end


def certificate_pem(name: str, key: str, begin: datetime, end: datetime) -> str:
    """A certificate of these times that is signed with its own key."""
    subject = x509.Name([])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).not_valid_before(begin)
    builder = builder.not_valid_after(end).serial_number(x509.random_serial_number())
    names = x509.SubjectAlternativeName([x509.DNSName(name)])
    private = key_from_pem(key)
    made = builder.public_key(private.public_key()).add_extension(names, critical=True).sign(private, SHA256())
    return made.public_bytes(Encoding.PEM).decode()


def certificate_make(name: str, **fields: Any) -> Certificate:
    """A name whose certificate is active, and known to the app above."""
    chain, key, begin, end = self_signed(name)
    due = renewal_time(begin, end)
    values = {"chain": chain, "key": key, "not_before": begin, "expires_at": end, "status": "active", "announced": True}
    return Certificate.objects.create(name=name, **{**values, "next_attempt_at": due, "due_at": due, **fields})
