"""Settings of the libvirt driver."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import parse_qs, urlsplit

from vmbackend.errors import BackendUnavailable
from vmbackend.uids import UidRange, default_first_uid

# Unix socket addresses hold 107 bytes. libvirt adds at most 56 to the root (`/lib/qemu/domain-NNNNN-` + 20 of the
# name + `/monitor.sock`), the driver at most 47 to the machines' directory (`/` + 40 of the id + `/agent`).
_SOCKET_PATH_MAX = 107
ROOT_MAX = _SOCKET_PATH_MAX - 56
MACHINES_DIR_MAX = _SOCKET_PATH_MAX - 47


class StoredImage(Protocol):
    """The part of an image that the driver needs: the squashfs file of its root."""

    @property
    def rootfs(self) -> Path: ...


class Images(Protocol):
    """Lookup of the images on this host."""

    def get(self, digest: str) -> StoredImage | None: ...


@dataclass(frozen=True, slots=True)
class LibvirtSettings:
    """The settings of one instance. Paths are absolute; sizes in the units of their names."""

    uri: str
    machines_dir: Path
    instance: str  # six hex digits: part of the bridge's, the taps' and the tables' names
    subnet: IPv4Network  # its first address is the host's
    kit_dir: Path
    control_public_key: str
    images: Images
    images_dir: Path | None = None  # where `images` keeps its files; None: machines reach them as they are
    first_uid: int | None = None  # of the range of `uids`; None: derived from the subnet
    address: str = ""  # at which other hosts reach this one; empty: it is alone
    dns: tuple[str, ...] = ()  # upstream DNS servers; none: those of the host's /etc/resolv.conf
    allowed_private: tuple[str, ...] = ()  # private networks that policies may allow
    memory_reserve_mb: int = 512
    disk_reserve_mb: int = 2048
    accel: Literal["auto", "kvm", "qemu"] = "auto"
    boot_log_bytes: int = 1 << 20
    boot_templates: int = 0  # how many are kept; each takes up to 100 MiB of the disk
    busy_root_seconds: float = 10.0  # how long `open` waits until another process releases the embedded root

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{6}", self.instance):
            raise ValueError("instance must be six hex digits")
        if not 12 <= self.subnet.prefixlen <= 29:
            raise ValueError("the subnet's prefix must be between /12 and /29")

    @property
    def embed_root(self) -> Path | None:
        """Return the root directory of an embedded libvirt; None with a libvirt daemon."""
        parts = urlsplit(self.uri)
        if parts.scheme != "qemu" or parts.path != "/embed":
            return None
        root = parse_qs(parts.query).get("root", [""])[0]
        if not root.startswith("/"):
            raise BackendUnavailable("The libvirt URI qemu:///embed needs root=/an/absolute/directory.")
        return Path(root)

    @property
    def is_test(self) -> bool:
        """Return whether it is libvirt's mock hypervisor, which has definitions and states, but no process, network or
        channel.
        """
        return urlsplit(self.uri).scheme == "test"

    @property
    def uids(self) -> UidRange:
        """Return the users of the machines' processes."""
        first = self.first_uid if self.first_uid is not None else default_first_uid(self.subnet)
        return UidRange(first, self.subnet)

    @property
    def gateway(self) -> str:
        return str(self.subnet.network_address + 1)

    def check(self) -> None:
        """Raise BackendUnavailable if a path is too long for the sockets below it."""
        root = self.embed_root
        if root is not None and len(str(root)) > ROOT_MAX:
            raise BackendUnavailable(f"The libvirt root is too long: at most {ROOT_MAX} characters.")
        if len(str(self.machines_dir)) > MACHINES_DIR_MAX:
            raise BackendUnavailable(f"The machines' directory is too long: at most {MACHINES_DIR_MAX} characters.")
