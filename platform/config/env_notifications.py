"""Settings of notifications; a part of `config.env.Env`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field

_MANY = 100_000


class NotificationSettings(BaseModel):
    """The providers, and how often may be sent."""

    fcm_credentials: Path | None = None
    push_contact: str = Field(default="", max_length=320, pattern=r"^([^@\s,]+@[^@\s,]+)?$")
    sends_per_minute: int = Field(default=60, ge=1, le=_MANY)
    push_threads: int = Field(default=128, ge=2, le=4096)
