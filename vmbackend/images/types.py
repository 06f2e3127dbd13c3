"""Types of the image code: settings, images, and the job of a caller."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path

from outbound.addresses import Network
from vmbackend.errors import DeadlineExceeded, ImageError

GIB = 1 << 30


class ImageCancelled(ImageError):
    """The caller's `cancelled()` returned True. Nothing remains."""

    code = "image_cancelled"


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """Settings of how images are fetched and how much space they may take."""

    arch: str = "amd64"  # as OCI spells it
    auth_file: Path | None = None  # containers-auth.json; None: anonymous access
    insecure_registries: tuple[str, ...] = ()  # host:port of registries with HTTP or an unknown certificate
    private_registries: tuple[str, ...] = ()  # allowed registries on addresses that are not public
    refused_networks: tuple[str, ...] = ()  # networks that no other registry may be in
    registry_mirrors: Mapping[str, str] = field(default_factory=dict)  # registry -> host:port to use instead
    max_unpacked_bytes: int = 16 * GIB
    cache_bytes: int = 50 * GIB  # eviction starts above this
    min_free_bytes: int = GIB  # always stays free
    pull_timeout: float = 1800.0  # seconds for one download; then ImageUnreachable is raised
    registry_timeout: float = 30.0  # seconds for one query to a registry
    evict_grace: float = 600.0  # seconds after its last use in which an image is not evicted
    local_store: Path | None = None  # OCI layout directory of `localhost/...` names

    @property
    def refused(self) -> tuple[Network, ...]:
        return tuple(map(ip_network, self.refused_networks))

    @property
    def listed_registries(self) -> frozenset[str]:
        """Return the registries that may be on any address, as the settings spell them."""
        return frozenset([*self.insecure_registries, *self.private_registries, *self.registry_mirrors.values()])


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """The image's configuration for its start. Untrusted text, checked for type and NUL bytes only."""

    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    working_dir: str = ""
    user: str = ""
    stop_signal: str = ""
    exposed_ports: tuple[str, ...] = ()  # "8080/tcp"
    volumes: tuple[str, ...] = ()  # paths
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Image:
    """A base disk that is ready. `digest`: of the manifest (or manifest list) of the reference. `changes`: sentences on
    what machines have not, or otherwise than the image says.
    """

    digest: str
    rootfs: Path  # squashfs
    size_bytes: int  # of the squashfs
    config: ImageConfig
    changes: tuple[str, ...] = ()


def never_cancelled() -> bool:
    """Return the `cancelled` of a caller that never cancels."""
    return False


@dataclass(slots=True)
class Job:
    """One caller's progress callback, deadline and cancellation. The reported percentage never decreases."""

    progress: Callable[[int, str], None]
    deadline: float  # time.monotonic()
    cancelled: Callable[[], bool]
    _percent: int = 0
    _message: str = ""

    def report_progress(self, percent: float, message: str) -> None:
        whole = max(self._percent, min(100, int(percent)))
        if (whole, message) != (self._percent, self._message):
            self._percent, self._message = whole, message
            self.progress(whole, message)

    def check_cancelled(self) -> None:
        """Raise ImageCancelled or DeadlineExceeded."""
        if self.cancelled():
            raise ImageCancelled("Preparing the image was cancelled.")
        if time.monotonic() >= self.deadline:
            raise DeadlineExceeded("Preparing the image took longer than allowed.")
