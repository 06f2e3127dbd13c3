"""Settings of pages that follow from no other one; a part of `config.env.Env`."""

from __future__ import annotations

from pydantic import BaseModel, Field

_YEAR = 366 * 86400


class PageSettings(BaseModel):
    """Limits of deploys (time, exported bytes), and of the earlier releases that are kept."""

    deploy_seconds: int = Field(default=1800, ge=10, le=_YEAR)
    deploy_wait_seconds: int = Field(default=600, ge=0, le=3600)
    page_max_bytes: int = Field(default=1 << 30, ge=1, le=1 << 50)
    page_max_files: int = Field(default=20_000, ge=1, le=1 << 31)
    page_file_max_bytes: int = Field(default=100 << 20, ge=1, le=1 << 50)
    page_path_max_bytes: int = Field(default=1024, ge=1, le=4096)
    page_releases: int = Field(default=10, ge=1, le=1000)
    page_retained_seconds: int = Field(default=86400, ge=0, le=_YEAR)
    pages_account_max_bytes: int = Field(default=10 << 30, ge=1, le=1 << 60)
