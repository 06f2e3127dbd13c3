"""Settings of the inside of workspaces; a part of `config.env.Env`."""

from __future__ import annotations

from pydantic import BaseModel, Field

_MANY = 100_000


class RuntimeSettings(BaseModel):
    """Limits of one workspace's runtime, and what answers from its inside may do."""

    # Limits of the tasks of one workspace. The guest itself runs at most 96.
    runtime_tasks_max: int = Field(default=64, ge=1, le=96)
    runtime_ended_tasks_max: int = Field(default=1000, ge=0, le=4000)
    runtime_log_bytes: int = Field(default=16 << 20, ge=1 << 20, le=1 << 30)
    runtime_logs_bytes: int = Field(default=256 << 20, ge=1 << 20, le=1 << 36)
    runtime_sockets_max: int = Field(default=16, ge=1, le=_MANY)
    # Whether answers of programs in machines set cookies, where the runtime has a host of its own.
    runtime_proxy_cookies: bool = False
