"""An agent of one SSH key (the agent protocol of OpenSSH): the key stays on the host, the guest gets signatures.

It signs nothing but requests for a login by this key as the remote's user: no commits, no certificates. A signature is
bound to one connection, and is of no use on another.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field

import asyncssh
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from sandboxes.level.git.addresses import Remote

TYPES = (b"ssh-ed25519", b"ecdsa-sha2-nistp256", b"ecdsa-sha2-nistp384", b"ecdsa-sha2-nistp521", b"ssh-rsa")
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192
_FAILURE = b"\x05"
_REQUEST_IDENTITIES, _IDENTITIES = 11, b"\x0c"
_SIGN, _SIGNATURE = 13, b"\x0e"
_LOGIN_REQUEST = 50
_METHODS = (b"publickey", b"publickey-hostbound-v00@openssh.com")
_RSA_FLAGS = {2: b"rsa-sha2-256", 4: b"rsa-sha2-512"}


class NotAKey(ValueError):
    """A sentence that says why, without any part of the key."""


def read_key(text: str) -> Key:
    """Return a private key without a passphrase, in any usual format. Raise NotAKey."""
    try:
        key = asyncssh.import_private_key(text if text.endswith("\n") else f"{text}\n")
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, ValueError, TypeError, OverflowError) as exc:
        raise NotAKey("This is not a private key without a passphrase.") from exc
    if key.algorithm not in TYPES:
        raise NotAKey("The key must be Ed25519, ECDSA or RSA.")
    inner = key.pyca_key
    if isinstance(inner, RSAPrivateKey) and not MIN_RSA_BITS <= inner.key_size <= MAX_RSA_BITS:
        raise NotAKey(f"An RSA key has {MIN_RSA_BITS} to {MAX_RSA_BITS} bits.")
    return Key(key)


@dataclass(frozen=True, slots=True)
class Key:
    """A private key."""

    key: asyncssh.SSHKey = field(repr=False)

    @property
    def schemes(self) -> frozenset[str]:
        """Return the schemes of the addresses that the key is for."""
        return frozenset({"ssh"})

    def secrets(self) -> list[str]:
        """Return no secrets: the key does not leave the host."""
        return []

    async def answer(self, question: bytes, remote: Remote) -> bytes:
        """Answer as an agent with this key alone."""
        if question == bytes([_REQUEST_IDENTITIES]):
            return _IDENTITIES + struct.pack(">I", 1) + _text(self.key.public_data) + _text(b"")
        try:
            algorithm, data = self._checked(question, remote)
        except (ValueError, IndexError, struct.error):
            return _FAILURE
        return _SIGNATURE + _text(await asyncio.to_thread(self.key.sign, data, algorithm))

    def _checked(self, question: bytes, remote: Remote) -> tuple[bytes, bytes]:
        """Return the algorithm, and what is to be signed. Raise ValueError, IndexError or struct.error for anything
        but a login.
        """
        kind, rest = question[0], question[1:]
        blob, rest = _read_string(rest)
        data, rest = _read_string(rest)
        (flags,) = struct.unpack(">I", rest)
        if kind != _SIGN or blob != self.key.public_data:
            raise ValueError
        algorithm = self.key.algorithm
        if algorithm == b"ssh-rsa":
            algorithm = next((name for bit, name in _RSA_FLAGS.items() if flags & bit), b"")
        _require_login(data, algorithm, blob, remote)
        return algorithm, data


def _require_login(data: bytes, algorithm: bytes, blob: bytes, remote: Remote) -> None:
    """Require that data is what a client signs to log in (RFC 4252, section 7). Raise what `_checked` raises."""
    _, rest = _read_string(data)  # of the connection
    kind, rest = rest[0], rest[1:]
    user, rest = _read_string(rest)
    service, rest = _read_string(rest)
    method, rest = _read_string(rest)
    signed, rest = rest[0], rest[1:]
    used, rest = _read_string(rest)
    key, rest = _read_string(rest)
    if method == _METHODS[1]:
        _, rest = _read_string(rest)  # the server's key
    wanted = (kind, service, signed, used, key, rest) == (_LOGIN_REQUEST, b"ssh-connection", 1, algorithm, blob, b"")
    if not algorithm or not wanted or method not in _METHODS:
        raise ValueError
    if remote.user is not None and user != remote.user.encode():
        raise ValueError


def _text(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _read_string(data: bytes) -> tuple[bytes, bytes]:
    """Return a text, and what follows. Raise ValueError, struct.error."""
    (size,) = struct.unpack_from(">I", data)
    if len(data) < 4 + size:
        raise ValueError
    return data[4 : 4 + size], data[4 + size :]
