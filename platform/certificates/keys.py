"""Private keys, certificate requests, and the check of what a CA sends as a chain."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtensionOID

_MOST_CERTIFICATES = 10
# A certificate that begins later than this from now is of no use. Less may be this host's clock, which others do not go
# by.
_EARLIEST = timedelta(days=1)


class ChainInvalid(ValueError):
    """A chain that cannot be served for the name."""


@dataclass(frozen=True, slots=True)
class CheckedChain:
    """`pem`: the certificates alone, the name's own first."""

    pem: str
    not_before: datetime
    expires_at: datetime


def new_key() -> str:
    """Return a new private key (P-256) as PEM."""
    made = ec.generate_private_key(ec.SECP256R1())
    return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def key_from_pem(pem: str) -> ec.EllipticCurvePrivateKey:
    """Return a key made by `new_key`."""
    key = load_pem_private_key(pem.encode(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("not a key on an elliptic curve")
    return key


def signing_request(name: str, key: str) -> bytes:
    """Return a certificate request (PEM) for one name, signed with its key."""
    names = x509.SubjectAlternativeName([x509.DNSName(name)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    made = builder.add_extension(names, critical=False).sign(key_from_pem(key), SHA256())
    return made.public_bytes(Encoding.PEM)


def check_chain(text: str, name: str, key: str, now: datetime) -> CheckedChain:
    """Return the chain that a CA sent if it can be served for the name with this key. Raise ChainInvalid if not."""
    try:
        found = x509.load_pem_x509_certificates(text.encode())
        own = found[0]
        names = own.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
        covered = names.get_values_for_type(x509.DNSName) if isinstance(names, x509.SubjectAlternativeName) else []
        same_key = _public_bytes(own.public_key()) == _public_bytes(key_from_pem(key).public_key())
        not_before, expires_at = own.not_valid_before_utc, own.not_valid_after_utc
        pem = "".join(each.public_bytes(Encoding.PEM).decode() for each in found)
    except Exception as error:  # a key, a version or an extension that the library does not know has a type of its own
        raise ChainInvalid("not a chain of certificates") from error
    if len(found) > _MOST_CERTIFICATES or name not in covered or not same_key:
        raise ChainInvalid("not a certificate of this name and key")
    if not not_before < expires_at > now or not_before > now + _EARLIEST:
        raise ChainInvalid("not a certificate of this time")
    return CheckedChain(pem, not_before, expires_at)


def _public_bytes(key: object) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined,no-any-return]
