"""The address of the CDN's host. Imports no Django."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Self
from urllib.parse import urlsplit

URL = re.compile(r"https?://[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*(:\d{1,5})?/?")


@dataclass(frozen=True, slots=True)
class CdnAddress:
    """A parsed address. `port` with its colon, empty where it is the scheme's own."""

    scheme: str
    host: str
    port: str

    @classmethod
    def of(cls, url: str) -> Self:
        """Parse an address. Raises ValueError with a message for the operator."""
        if not URL.fullmatch(url):
            raise ValueError("Give an address such as https://cdn.example.org, lowercase, without a path.")
        parts = urlsplit(url)
        return cls(parts.scheme, parts.hostname or "", f":{parts.port}" if parts.port else "")

    def url(self, path: str) -> str:
        """Of a path without a slash in front."""
        return f"{self.scheme}://{self.host}{self.port}/{path}"


@lru_cache(maxsize=4)
def cdn_address(url: str) -> CdnAddress:
    """As `CdnAddress.of`."""
    return CdnAddress.of(url)
