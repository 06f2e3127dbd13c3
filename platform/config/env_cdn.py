"""Settings of the CDN that follow from no other one; a part of `config.env.Env`."""

from __future__ import annotations

from pydantic import BaseModel, Field, ValidationInfo, field_validator

_YEAR = 366 * 86400


class CdnSettings(BaseModel):
    """The store of files, and the time limits of each step of an upload."""

    cdn_s3_bucket: str = Field(default="", pattern=r"^([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])?$")
    cdn_s3_endpoint: str = Field(default="", validate_default=True, pattern=r"^(https?://[a-z0-9.-]+(:\d{1,5})?)?$")
    cdn_s3_region: str = "us-east-1"
    cdn_s3_addressing: str = Field(default="path", pattern=r"^(path|virtual)$")
    cdn_s3_prefix: str = Field(default="", pattern=r"^([A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*)?$")
    cdn_s3_access_key: str = ""
    cdn_s3_secret_key: str = ""
    cdn_upload_wait_seconds: int = Field(default=10, ge=0, le=600)
    cdn_permit_seconds: int = Field(default=900, ge=1, le=_YEAR)
    cdn_upload_seconds: int = Field(default=3600, ge=1, le=_YEAR)
    cdn_lease_seconds: int = Field(default=30, ge=6, le=3600)
    cdn_processing_seconds: int = Field(default=86400, ge=60, le=_YEAR)
    cdn_rejected_seconds: int = Field(default=86400, ge=0, le=_YEAR)
    cdn_media_processes: int = Field(default=2, ge=1, le=256)
    cdn_orphan_grace_seconds: int = Field(default=3600, ge=0, le=_YEAR)

    @field_validator("cdn_s3_endpoint")
    @classmethod
    def _store_address(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("cdn_s3_bucket") and not value:
            raise ValueError("Give the address of the store, because PLATFORM_CDN_S3_BUCKET is set.")
        return value
