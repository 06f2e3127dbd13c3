"""Image references as in Docker: `python` is `docker.io/library/python:latest`.

The grammar is that of the distribution specification; text that does not match is never passed on a command line, so
options (`--x`), transports (`dir:/etc`) and white space cannot be injected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from vmbackend.errors import ImageError

LOCAL_DOMAIN = "localhost"  # without a port: the local OCI store, never_cancelled the network
MAX_LENGTH = 512

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]+\])(?::[0-9]{{1,5}})?"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:(?P<domain>{_DOMAIN})/)?(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_TRANSPORTS = frozenset(
    [
        "containers-storage",
        "dir",
        "docker",
        "docker-archive",
        "docker-daemon",
        "http",
        "https",
        "oci",
        "oci-archive",
        "ostree",
        "sif",
        "tarball",
    ]
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A complete reference. With both, the digest is used and the tag is informational."""

    domain: str
    path: str
    tag: str
    digest: str | None = None

    @property
    def is_local(self) -> bool:
        return self.domain == LOCAL_DOMAIN

    @property
    def repository(self) -> str:
        return f"{self.domain}/{self.path}"

    @property
    def tagged(self) -> str:
        return f"{self.repository}:{self.tag}"

    def __str__(self) -> str:
        return f"{self.repository}@{self.digest}" if self.digest else self.tagged


def parse_reference(text: str) -> Reference:
    """Parse a reference as a user writes it. Raise ImageError with a message that explains the problem."""
    if not text or len(text) > MAX_LENGTH:
        raise ImageError(f"An image reference has 1 to {MAX_LENGTH} characters.")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ImageError("An image reference must not contain spaces, control characters or non-ASCII characters.")
    scheme = text.partition(":")[0]
    if "://" in text or (scheme in _TRANSPORTS and text[len(scheme) + 1 : len(scheme) + 2] in ("/", ".")):
        raise ImageError("Specify the image as registry/name:tag, without a scheme.")
    match = _REFERENCE.fullmatch(_with_domain(text))
    if match is None:
        raise ImageError(f"'{text[:100]}' is not an image reference such as registry.example.com/name:tag.")
    return Reference(match["domain"], match["path"], match["tag"] or "latest", match["digest"])


def _with_domain(text: str) -> str:
    """Apply Docker's rule: the first part is a registry if it has a dot or a port, or is `localhost`."""
    first, slash, rest = text.partition("/")
    if not slash or not (set(".:[") & set(first) or first == LOCAL_DOMAIN):
        return f"docker.io/{text}" if slash else f"docker.io/library/{text}"
    if first in ("docker.io", "index.docker.io"):
        return f"docker.io/{rest}" if "/" in rest else f"docker.io/library/{rest}"
    return text
