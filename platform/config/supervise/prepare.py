"""What must be there before the processes start: guest kit, default image, database. Each is made once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from config.instance import ROOT, Instance, InstanceError
from config.supervise.conf import process_environment
from config.supervise.control import exclusive
from config.supervise.leftovers import MARKER
from config.supervise.show import Progress
from vmbackend.errors import BackendError


def prepare(instance: Instance, settings: Mapping[str, str]) -> None:
    """Make what is missing; a second call takes about a second.

    Raises InstanceError with what to do about it. If it dies half way, the next call goes on from there.
    """
    with exclusive(instance, "prepare"):
        if settings.get("PLATFORM_VM_BACKEND", "libvirt") == "libvirt":
            guest_kit(settings)
            default_image(settings)
        _database(instance, settings)


def guest_kit(settings: Mapping[str, str]) -> None:
    """Build the guest kit where it is missing or older than its sources. Raises InstanceError."""
    from vmbackend.guest.kit import build_kit

    with _step("Guest kit") as progress:
        build_kit(Path(settings["PLATFORM_KIT_DIR"]), progress)


def guest_kernel(settings: Mapping[str, str]) -> None:
    """Build the small guest kernel. Raises InstanceError."""
    from vmbackend.guest.kit import build_kernel

    with _step("Guest kernel") as progress:
        build_kernel(Path(settings["PLATFORM_KIT_DIR"]), progress)


def default_image(settings: Mapping[str, str]) -> None:
    """Build the default image into the local store; one that a registry holds is pulled at its first use."""
    from vmbackend.images.build import build_default_image

    name = settings["PLATFORM_DEFAULT_IMAGE"]
    if not name.startswith("localhost/"):
        return
    with _step("Default image") as progress:
        build_default_image(Path(settings["PLATFORM_IMAGES_DIR"]) / "oci", name, progress)


@contextmanager
def _step(title: str) -> Iterator[Progress]:
    progress = Progress(title)
    try:
        yield progress
    except BackendError as error:
        raise InstanceError(f"{title}: {error.message}") from error
    progress.done()


def _database(instance: Instance, settings: Mapping[str, str]) -> None:
    step = Progress("Database")
    environment = process_environment(instance, settings)
    # The mark is for supervised processes; a `make down` in this moment must not end a migration in the
    # middle.
    environment.pop(MARKER)
    command = [sys.executable, "-m", "config.supervise.database"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InstanceError(f"The database could not be prepared:\n{done.stdout}{done.stderr}")
    step.done()
