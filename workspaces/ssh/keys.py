"""OpenSSH public keys: validation and presentation."""

from __future__ import annotations

from typing import NamedTuple

import asyncssh
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from rest_framework.serializers import ValidationError

from vmbackend.guest import records

PRIVATE = "This is a private key: do not share it; send the public one."
MIN_RSA_BITS = 2048


def public_key(text: str) -> str:
    """One OpenSSH public key line, stripped. Raises ValidationError; its message never contains the text."""
    if "PRIVATE KEY" in text:
        raise ValidationError(PRIVATE)
    try:
        line = records.check_ssh_key(text)
        key = parsed(line)
    except (ValueError, OverflowError, asyncssh.KeyImportError) as exc:
        raise ValidationError("Give one OpenSSH public key line: its type, the key and a comment.") from exc
    # dropbear itself accepts smaller ones.
    if isinstance(key.pyca_key, RSAPublicKey) and key.pyca_key.key_size < MIN_RSA_BITS:
        raise ValidationError(f"An RSA key must have at least {MIN_RSA_BITS} bits.")
    return line


def parsed(line: str) -> asyncssh.SSHKey:
    """Raises asyncssh.KeyImportError, ValueError, and OverflowError for a negative number in an RSA key."""
    return asyncssh.import_public_key(line.encode())


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
