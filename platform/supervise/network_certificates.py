"""The certificates of an instance's private network: its own authority, and one for the address that it opened."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from common.private_network import AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY
from supervise.files import write_private

# Nobody renews them: they are trusted by the machines that were given the authority, and by no others.
_YEARS = timedelta(days=20 * 365)
# Clocks of other machines may be behind this one's.
_BEFORE = timedelta(days=1)


def make_certificates(folder: Path, address: str) -> None:
    """Make what is missing in the folder, and another certificate if the one there is of another address.

    A key lies there before its certificate, so that a call that died half way leaves nothing that is used.
    """
    if not (folder / AUTHORITY).exists():
        _make_authority(folder)
    if not _is_certificate_of(folder / CERTIFICATE, address):
        _make_certificate(folder, address)


def _make_authority(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("microvm workspaces")
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    made = (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, SHA256())
    )
    _write_key(folder / AUTHORITY_KEY, key)
    write_private(folder / AUTHORITY, made.public_bytes(Encoding.PEM).decode())


def _make_certificate(folder: Path, address: str) -> None:
    authority = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
    signer = load_pem_private_key((folder / AUTHORITY_KEY).read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)  # noqa: S101 - narrows the type
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(address))])
    made = (
        _builder(_name(address), authority.subject, key.public_key())
        .add_extension(names, critical=False)
        .sign(signer, SHA256())
    )
    (folder / CERTIFICATE).unlink(missing_ok=True)
    _write_key(folder / KEY, key)
    write_private(folder / CERTIFICATE, made.public_bytes(Encoding.PEM).decode())


def _is_certificate_of(path: Path, address: str) -> bool:
    if not path.exists():
        return False
    found = x509.load_pem_x509_certificate(path.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.IPAddress) == [IPv4Address(address)]


def _builder(subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        issuer, subject, public_key, x509.random_serial_number(), now - _BEFORE, now + _YEARS
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
