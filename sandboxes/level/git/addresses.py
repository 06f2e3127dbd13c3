"""Places of remotes, as git names them: in a URL, in `user@host:path`, in the question for a password."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443, "ssh": 22}
_SHORT = re.compile(r"(?:([A-Za-z0-9_.][A-Za-z0-9_.-]*)@)?(\[[^\]/]+\]|[A-Za-z0-9_][A-Za-z0-9_.-]*):(?!//)")


@dataclass(frozen=True, slots=True)
class Remote:
    """Scheme, host in small letters, port, and the user that the address names."""

    scheme: str
    host: str
    port: int | None
    user: str | None = None

    def is_place_of(self, other: Remote) -> bool:
        """Return whether what is meant for `other` may go here: the same place, or https if it was plain http."""
        if self.host != other.host:
            return False
        upgraded = (other.scheme, other.port, self.scheme, self.port) == ("http", 80, "https", 443)
        return upgraded or (self.scheme, self.port) == (other.scheme, other.port)


def read_remote(address: str) -> Remote | None:
    """Return the place of an address; None for a path, and for what has no host."""
    if "://" not in address:
        short = _SHORT.match(address)
        return Remote("ssh", short[2].strip("[]").lower(), 22, short[1]) if short else None
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host:
        return None
    return Remote(parts.scheme, host, port or _DEFAULT_PORTS.get(parts.scheme), parts.username)
