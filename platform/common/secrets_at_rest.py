"""Secrets at rest: keyed hashes for what is only compared, Fernet for what must be read again.

What hosts read (environments, workloads) is encrypted under the data key, which a host has; everything else under the
secret key, which a machine that joined has not.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from django.db import models


def new_secret(prefix: str = "") -> str:
    """Return 256 random bits as text."""
    return prefix + secrets.token_urlsafe(32)


def keyed_hash(secret: str, key: str | None = None) -> str:
    """Return HMAC-SHA256 under the installation's key. The secrets have 256 random bits, so no slow hash is needed."""
    return hmac.new((key or settings.SECRET_KEY).encode(), secret.encode(), hashlib.sha256).hexdigest()


def keyed_hashes(secret: str) -> list[str]:
    """Return the hashes under the present key and those that it replaced, to find the row of a secret by its hash."""
    return [keyed_hash(secret, key) for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]


def matches_hash(secret: str, stored_hash: str) -> bool:
    """Return whether a secret has this keyed hash, under the present key or one that it replaced; in constant time."""
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return any(hmac.compare_digest(keyed_hash(secret, key), stored_hash) for key in keys)


@lru_cache(maxsize=1)
def _fernet() -> MultiFernet:
    return _fernet_of([settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS])


@lru_cache(maxsize=1)
def _data_fernet() -> MultiFernet:
    return _fernet_of([settings.DATA_KEY, *settings.DATA_KEY_FALLBACKS])


def _fernet_of(keys: Iterable[str]) -> MultiFernet:
    """Return what encrypts with the first key, and decrypts with each."""
    return MultiFernet(
        [Fernet(base64.urlsafe_b64encode(hashlib.sha256(b"at-rest:" + key.encode()).digest())) for key in keys]
    )


def encrypted_text(text: str) -> str:
    return _fernet().encrypt(text.encode()).decode()


def decrypted_text(text: str) -> str:
    """Return the text, decrypted with the present key or one that it replaced. Raise `cryptography.fernet.InvalidToken`
    for anything else.
    """
    return _fernet().decrypt(text.encode()).decode()


if TYPE_CHECKING:
    _AnyTextField = models.TextField[Any, Any]
else:
    _AnyTextField = models.TextField


class EncryptedJSONField(_AnyTextField):
    """A JSON value that is encrypted in the database. Cannot be queried."""

    def fernet(self) -> MultiFernet:
        """Return what the value is encrypted with."""
        return _fernet()

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Any:
        return None if value is None else json.loads(self.fernet().decrypt(value.encode()))

    def get_prep_value(self, value: Any) -> str | None:
        if value is None:
            return None
        return self.fernet().encrypt(json.dumps(value, separators=(",", ":")).encode()).decode()

    def to_python(self, value: Any) -> Any:
        return value


class DataJSONField(EncryptedJSONField):
    """A JSON value that hosts read, too: encrypted under the data key."""

    def fernet(self) -> MultiFernet:
        """Return that of the data key."""
        return _data_fernet()
