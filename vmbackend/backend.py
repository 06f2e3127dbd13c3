"""From Django's settings to the driver, the image store and the guest pool of this process."""

from __future__ import annotations

import os
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings

from vmbackend.driver import Driver
from vmbackend.guest.kit import find_kit
from vmbackend.guest.pool import GuestPool
from vmbackend.guest.session import GuestAddress, GuestSession
from vmbackend.images.types import ImageSettings
from vmbackend.machines_folder import claim_folder

if TYPE_CHECKING:
    from vmbackend.guest.hold import HoldClient, HoldSettings
    from vmbackend.images.store import ImageStore
    from vmbackend.transfer.server import TransferServer

# Backends are imported where they are chosen: only vmhost needs libvirt, and most workers reach no guest, for which
# SSH's library is loaded.


def image_store() -> ImageStore:
    """Return the host's image cache. Only vmhost and the image commands open it."""
    env = settings.ENV
    if env.vm_backend == "fake":
        from vmbackend.fake.images import FakeImageStore

        return FakeImageStore()  # type: ignore[return-value]  # the same interface, without files
    from vmbackend.images.store import ImageStore

    root = env.images_dir
    return ImageStore(
        root,
        ImageSettings(
            auth_file=env.registry_auth_file,
            insecure_registries=env.insecure_registries,
            private_registries=env.private_registries,
            refused_networks=(*env.refused_networks, str(env.subnet)),
            max_unpacked_bytes=env.image_max_mb << 20,
            cache_bytes=env.image_cache_mb << 20,
            min_free_bytes=env.disk_reserve_mb << 20,
            pull_timeout=float(env.image_pull_seconds),
            local_store=root / "oci",
        ),
    )


def build_driver() -> Driver:
    """Return the configured driver, not yet open. Only vmhost calls this. Raise BackendUnavailable."""
    env = settings.ENV
    if env.vm_backend == "fake":
        from vmbackend.fake.driver import FakeDriver

        return FakeDriver(machines_dir())
    if env.machines_dir != env.state / "machines":
        claim_folder(env.machines_dir, env.instance)
    # The first command of a guest does not wait until SSH's library is loaded.
    import vmbackend.guest.ssh  # noqa: F401
    from vmbackend.libvirt.driver import LibvirtDriver
    from vmbackend.libvirt.settings import LibvirtSettings

    return LibvirtDriver(
        LibvirtSettings(
            uri=env.libvirt_uri,
            machines_dir=machines_dir(),
            instance=env.instance,
            subnet=env.subnet,
            address=env.host_address,
            dns=env.guest_dns,
            kit_dir=env.kit_dir,
            control_public_key=accepted_keys(),
            images=image_store(),
            images_dir=env.images_dir,
            first_uid=env.machine_uid_first,
            memory_reserve_mb=env.memory_reserve_mb,
            disk_reserve_mb=env.disk_reserve_mb,
            accel=env.accel,
            boot_templates=env.boot_templates,
        )
    )


def kit_version() -> str:
    """Return the version of the guest kit that new machines start with. Raise BackendUnavailable if there is none."""
    env = settings.ENV
    return "fake" if env.vm_backend == "fake" else find_kit(env.kit_dir).version


def machines_dir() -> Path:
    path: Path = settings.ENV.machines_dir
    return path


def accepted_keys() -> str:
    """Return the public keys, a line each, that this host's guests accept: its own, and that of the control plane of
    the instance that it has joined.
    """
    own = control_key().with_suffix(".pub").read_text().strip()
    return "\n".join(filter(None, [settings.ENV.control_key, own]))


def control_key() -> Path:
    """Return the private key with which the platform logs in to its guests; created on first use, mode 0600.

    Safe if two processes start at once: both use the key of the first.
    """
    path: Path = settings.STATE / "keys" / "control_ed25519"
    if not path.exists():
        from asyncssh import generate_private_key

        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = generate_private_key("ssh-ed25519", comment="control")
        _write_once(path, made.export_private_key(), 0o600)
    public = path.with_suffix(".pub")
    if not public.exists():
        from asyncssh import read_private_key

        _write_once(public, read_private_key(path).export_public_key(), 0o644)
    return path


def transfer_key() -> Path | None:
    """Return the private key of this host with which files of workspaces move between hosts; None if it has none: the
    instance was not opened to other machines.
    """
    path: Path = settings.STATE / "network" / "transfer_key"
    return path if path.exists() else None


def transfer_public_key() -> str:
    """Return its public line; empty if there is none."""
    path = transfer_key()
    if path is None:
        return ""
    from asyncssh import read_private_key

    return " ".join(read_private_key(path).export_public_key().decode().split()[:2])


def transfer_server() -> TransferServer | None:
    """Return the server at which other hosts fetch files of workspaces from this one, not started; None if none reaches
    it.
    """
    key, env = transfer_key(), settings.ENV
    if key is None or not env.host_address:
        return None
    from vmbackend.transfer.server import TransferServer

    return TransferServer(env.host_address, transfer_port(), key)


def transfer_port() -> int:
    """Return the port of that server, which is the same one on all hosts."""
    return int(settings.ENV.private_port) + 2


def _write_once(path: Path, content: bytes, mode: int) -> None:
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
    try:
        os.link(beside, path)  # fails if the file exists, unlike a rename
    except FileExistsError:
        pass
    finally:
        Path(beside).unlink()


@lru_cache(maxsize=1)
def guest_pool() -> GuestPool:
    """Return this process's sessions to guests.

    In streams, which runs the commands of users, these take at most half of the machines, so that files and logs, which
    are short, always find a place.
    """
    env = settings.ENV
    return GuestPool(open_session, **({"max_connections": 2 * env.commands_max} if env.role == "streams" else {}))


def open_session(address: GuestAddress) -> GuestSession:
    """Return a session to one guest, of the configured backend."""
    if settings.ENV.vm_backend == "fake":
        from vmbackend.fake.guest import FakeGuestSession

        return FakeGuestSession(machines_dir(), address.machine_id)
    from vmbackend.guest.ssh import SSHGuestSession

    kept = settings.ENV.sandbox_output_bytes
    return SSHGuestSession(address, control_key(), search_folder=_search_folder, terminal_buffer=kept)


def _search_folder() -> Path:
    """Raise BackendUnavailable if no kit is built."""
    return find_kit(settings.ENV.kit_dir).search


def open_hold(address: GuestAddress, hold: HoldSettings) -> HoldClient:
    """Return a client of the terminals that a guest keeps, for the running event loop. The caller closes it."""
    if settings.ENV.vm_backend == "fake":
        from vmbackend.fake.holds import hold_opener
        from vmbackend.guest.hold import HoldClient

        return HoldClient(hold_opener(machines_dir() / "directories" / address.machine_id / "disk"), hold)
    from vmbackend.guest.ssh import SSHGuestSession

    kept = settings.ENV.sandbox_output_bytes
    return SSHGuestSession(address, control_key(), terminal_buffer=kept).open_hold(hold)
