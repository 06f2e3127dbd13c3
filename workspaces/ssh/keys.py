"""OpenSSH public keys: validation and presentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from vmbackend.guest import records

if TYPE_CHECKING:
    from asyncssh import SSHKey

PRIVATE = "This is a private key: do not share it; send the public one."
MIN_RSA_BITS = 2048


class KeyRefused(ValueError):
    """Its sentence, which the caller reads, never contains the text."""


def public_key(text: str) -> str:
    """One OpenSSH public key line, stripped. Raises KeyRefused."""
    if "PRIVATE KEY" in text:
        raise KeyRefused(PRIVATE)
    try:
        line = records.check_ssh_key(text)
        key = parsed(line)
    except (ValueError, OverflowError) as exc:
        raise KeyRefused("Give one OpenSSH public key line: its type, the key and a comment.") from exc
    # dropbear itself accepts smaller ones.
    if isinstance(key.pyca_key, RSAPublicKey) and key.pyca_key.key_size < MIN_RSA_BITS:
        raise KeyRefused(f"An RSA key must have at least {MIN_RSA_BITS} bits.")
    return line


def parsed(line: str) -> SSHKey:
    """Raises ValueError, and OverflowError for a negative number in an RSA key."""
    # Not at the top: of the workers that load this, one renews keys of guests.
    from asyncssh import import_public_key

    return import_public_key(line.encode())


def fingerprint(line: str) -> str:
    """`SHA256:...`, as ssh-keygen shows it; without the comment."""
    return parsed(line).get_fingerprint()


class PublicKey(NamedTuple):
    """What responses show of an authorized key."""

    fingerprint: str
    type: str
    comment: str


def described_key(line: str) -> PublicKey:
    """The parts of a key's line that responses show."""
    kind, _, rest = line.partition(" ")
    return PublicKey(fingerprint(line), kind, rest.partition(" ")[2].strip())
