"""Preparation before the processes start: guest kit, default image, database. Each is made once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from common.private_network import stored_address
from config.env import Env
from config.env_types import HOST_ROLE
from supervise.configuration import process_environment
from supervise.control import exclusive_control
from supervise.database import HOST_NAME_HELD, INVALID_SETTINGS, LOCK_NOT_HAD, REPORT
from supervise.instance import ROOT, Instance, InstanceError
from supervise.network import require_transfer_key
from supervise.output import progress_of
from supervise.postgres import DISK_FULL, data_folder, has_room, require_fitting_programs, says_full_disk
from supervise.postgres_server import running_server
from vmbackend.errors import BackendError


def prepare_instance(instance: Instance, settings: Env) -> None:
    """Make what is missing; a second call takes about a second.

    Raise InstanceError with what to do about it. If it dies half way, the next call goes on from there.
    """
    require_no_former_database(instance)
    with exclusive_control(instance, "prepare"):
        if stored_address(instance.state):  # opened by a version that made no key
            require_transfer_key(instance)
        if settings.has_own_server:
            require_fitting_programs(instance)
        if settings.vm_backend == "libvirt" and HOST_ROLE in settings.machine_roles:
            build_guest_kit(settings)
            build_default_image(settings)
        with progress_of("Database") as progress, running_server(instance, settings):
            _prepare_database(instance, settings, progress)


def require_no_former_database(instance: Instance) -> None:
    """Raise InstanceError if the folder is of a version that had its database in a file."""
    former = instance.state / "db.sqlite3"
    if former.exists():
        raise InstanceError(
            f"{former} is the database of an earlier version, which this one does not read: move the file away to "
            f"begin with an empty one, or remove the instance: make clean-instance CONFIRM=yes STATE={instance.state}"
        )


def build_guest_kit(settings: Env) -> None:
    """Build the guest kit if it is missing or older than its sources. Raise InstanceError."""
    from vmbackend.guest.kit import build_kit

    with _step("Guest kit") as progress:
        build_kit(settings.kit_dir, progress)


def build_guest_kernel(settings: Env) -> None:
    """Build the small guest kernel. Raise InstanceError."""
    from vmbackend.guest.kit import build_kernel

    with _step("Guest kernel") as progress:
        build_kernel(settings.kit_dir, progress)


def build_default_image(settings: Env) -> None:
    """Build the default image into the local store; one of a registry is pulled at its first use.

    Raise InstanceError.
    """
    from vmbackend.images import build

    if not settings.default_image.startswith("localhost/"):
        return
    with _step("Default image") as progress:
        build.build_default_image(settings.images_dir / "oci", settings.default_image, progress)


@contextmanager
def _step(title: str) -> Iterator[Callable[[int, str], None]]:
    try:
        with progress_of(title) as progress:
            yield progress
    except BackendError as error:
        raise InstanceError(f"{title}: {error.message}") from error


def _prepare_database(instance: Instance, settings: Env, progress: Callable[[int, str], None]) -> None:
    # Not marked as supervised: a `make down` at this moment must not end a migration half way.
    environment = process_environment(instance, settings)
    command = [sys.executable, "-m", "supervise.database", str(os.getpid())]
    code, output = _run_reporting(command, environment, lambda text: progress(0, text))
    if code in (INVALID_SETTINGS, LOCK_NOT_HAD, HOST_NAME_HELD):
        raise InstanceError(output.rstrip())
    if code != 0 and (says_full_disk(output) or not has_room(data_folder(instance))):
        raise InstanceError(DISK_FULL)
    if code != 0:
        raise InstanceError(f"The database could not be prepared:\n{output}")


def _run_reporting(command: list[str], environment: dict[str, str], report: Callable[[str], None]) -> tuple[int, str]:
    """Run a command to its end; its exit code, and what it printed but for the lines that `report` has got.

    If this process is interrupted, the command is killed.
    """
    printed = []
    with subprocess.Popen(
        command,
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as child:
        assert child.stdout is not None  # noqa: S101 - narrows the type
        try:
            for line in child.stdout:
                if line.startswith(REPORT):
                    report(line.removeprefix(REPORT).rstrip())
                else:
                    printed.append(line)
            return child.wait(), "".join(printed)
        except BaseException:
            child.kill()
            raise
