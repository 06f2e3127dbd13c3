"""Public addresses of ports in machines: `https://<hash>.<domain>`, by one template. Imports no Django."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Self
from urllib.parse import urlsplit

PLACEHOLDER = "{hash}"
TEMPLATE = re.compile(r"https?://\{hash\}(\.[a-z0-9-]{1,63})+(:\d{1,5})?")
HASH_LENGTH = 20
# In front of the hash stands the port's slug, if it has one. A label has 63 characters at most.
SLUG_LENGTH = 63 - 1 - HASH_LENGTH
_LABEL = re.compile(rf"(?:([a-z0-9](?:[a-z0-9-]{{0,{SLUG_LENGTH - 2}}}[a-z0-9])?)-)?([a-z2-7]{{{HASH_LENGTH}}})")


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """A parsed template. `suffix` is the host name after its first label, with the dot."""

    scheme: str
    suffix: str
    port: str

    @classmethod
    def of(cls, template: str) -> Self:
        """Parse a template. Raises ValueError with a message for the operator."""
        if not TEMPLATE.fullmatch(template):
            raise ValueError("Give an address such as https://{hash}.apps.example.org, lowercase, without a path.")
        parts = urlsplit(template.replace(PLACEHOLDER, "hash"))
        return cls(parts.scheme, (parts.hostname or "").removeprefix("hash"), f":{parts.port}" if parts.port else "")

    def domain(self, label: str) -> str:
        """The name of one port."""
        return f"{label}{self.suffix}"

    def url(self, label: str) -> str:
        """Its address."""
        return f"{self.scheme}://{label}{self.suffix}{self.port}"

    def label_of(self, host: str) -> tuple[str, str] | None:
        """Slug (empty: none) and hash that a request's host names, None for every other name."""
        name = host.lower().removesuffix(".")
        if not name.endswith(self.suffix):
            return None
        found = _LABEL.fullmatch(name.removesuffix(self.suffix))
        return (found[1] or "", found[2]) if found else None


@lru_cache(maxsize=4)
def public_address(template: str) -> PublicAddress:
    """As `PublicAddress.of`."""
    return PublicAddress.of(template)


def both_forms(host: str, port: int) -> str:
    """Addresses of a site of the edge by HTTP: the host as it is, and with a dot at its end. By https Caddy takes no
    such name; there one leads to the other (`edge.certificate_sites`).
    """
    return f"http://{host}:{port}, http://{host}.:{port}"


def is_port_label(text: str) -> bool:
    """Whether the first label of a name could be that of a port."""
    return _LABEL.fullmatch(text) is not None


def label(slug: str, hash_: str) -> str:
    """The first label of a port's name."""
    return f"{slug}-{hash_}" if slug else hash_
