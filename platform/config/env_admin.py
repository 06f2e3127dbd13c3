"""Settings of the admin; a part of `config.env.Env`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

_MONTH = 31 * 86400


class AdminSettings(BaseModel):
    """Settings of how staff log in. Times are seconds."""

    admin_session_seconds: int = Field(default=12 * 3600, ge=300, le=_MONTH)
    admin_idle_seconds: int = Field(default=2 * 3600, ge=300, le=_MONTH)
    admin_second_factor: Literal["off", "optional", "required"] = "optional"
