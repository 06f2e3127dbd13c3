"""Settings of code assistance; a part of `config.env.Env`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from config.env_types import ModelAddress

_MANY = 100_000


class AssistSettings(BaseModel):
    """The server of the model, and what may be asked of it at once. Times are seconds."""

    assist_url: ModelAddress = ""
    assist_model: str = ""
    assist_key: str = ""
    assist_format: Literal["json_schema", "json_object", "none"] = "json_schema"
    assist_output_tokens: int = Field(default=2048, ge=1, le=_MANY)
    assist_connect_seconds: float = Field(default=5.0, gt=0, le=600)
    assist_seconds: float = Field(default=60.0, gt=0, le=3600)
    assist_concurrency: int = Field(default=4, ge=1, le=4096)
    assist_queue: int = Field(default=16, ge=0, le=4096)
    assist_queue_seconds: float = Field(default=10.0, ge=0, le=600)
    assist_calls_per_minute: int = Field(default=60, ge=1, le=_MANY)
