"""Sessions of the admin in the database, under a hash of their key: who reads the table cannot use what it holds.

A key has 165 random bits, so a plain hash is enough, and one without the secret key outlives its rotation. Data is
signed by Django, and encrypted: a new credential's secret is in it until the page that shows it once has been read.
"""

from __future__ import annotations

import hashlib
from typing import Any

from asgiref.sync import sync_to_async
from cryptography.fernet import InvalidToken
from django.contrib.sessions.backends import db
from django.utils import timezone

from common.secrets_at_rest import decrypted_text, encrypted_text

# The length of Django's column.
KEY_LENGTH = 40


def stored_key(session_key: str) -> str:
    """Return the hash that the table stores in place of a session's key."""
    return hashlib.sha256(session_key.encode()).hexdigest()[:KEY_LENGTH]


class SessionStore(db.SessionStore):
    """Django's, but for the key under which a row is stored and found, and for its data."""

    def encode(self, session_dict: dict[str, Any]) -> str:
        return encrypted_text(super().encode(session_dict))

    def decode(self, session_data: bytes | str) -> dict[str, Any]:
        """Return the session's data; empty for an invalid text, which signs the session out."""
        try:
            data = decrypted_text(session_data if isinstance(session_data, str) else session_data.decode())
        except (InvalidToken, UnicodeError):
            return {}
        return super().decode(data)

    def exists(self, session_key: str) -> bool:
        return super().exists(stored_key(session_key))

    def delete(self, session_key: str | None = None) -> None:
        key = session_key or self.session_key
        if key is not None:
            super().delete(stored_key(key))

    def create_model_instance(self, data: dict[str, Any]) -> Any:
        made = super().create_model_instance(data)
        made.session_key = stored_key(made.session_key)
        return made

    def _get_session_from_db(self) -> Any:
        rows = self.model.objects.filter(session_key=stored_key(self.session_key or ""), expire_date__gt=timezone.now())
        found = rows.first()
        if found is None:
            self._session_key = None
        return found

    # No asynchronous view uses sessions; Django's own methods would store the key itself.

    async def aexists(self, session_key: str) -> bool:
        return await sync_to_async(self.exists)(session_key)

    async def adelete(self, session_key: str | None = None) -> None:
        await sync_to_async(self.delete)(session_key)

    async def acreate_model_instance(self, data: dict[str, Any]) -> Any:
        return await sync_to_async(self.create_model_instance)(data)

    async def _aget_session_from_db(self) -> Any:
        return await sync_to_async(self._get_session_from_db)()
