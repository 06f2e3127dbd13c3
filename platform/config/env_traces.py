"""Settings of traces; a part of `config.env.Env`."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_validator


class TracesSettings(BaseModel):
    """The address that spans are sent to by OTLP over HTTP, and the share of traces. OTEL_EXPORTER_OTLP_HEADERS has
    headers.
    """

    traces_endpoint: str = ""
    traces_share: float = Field(default=1.0, ge=0, le=1)

    @field_validator("traces_endpoint")
    @classmethod
    def _collector(cls, value: str) -> str:
        """Return the address of a collector; without a path that of OTLP. Without a password, which logs would show."""
        if not value:
            return value
        parts = urlsplit(value)
        parts.port  # noqa: B018 - raises ValueError
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("It must begin with http:// or https:// and a name.")
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError(
                "It must not have a user name, query or fragment; a key goes into OTEL_EXPORTER_OTLP_HEADERS."
            )
        return value if parts.path.strip("/") else parts._replace(path="/v1/traces").geturl()
