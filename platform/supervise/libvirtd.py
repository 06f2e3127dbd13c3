"""The definitions of machines at a libvirtd. An embedded libvirt has them as files of the state folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from config.env import Env
from supervise.files import write_private
from supervise.instance import InstanceError


def uses_libvirtd(settings: Env) -> bool:
    """Return whether machines are defined at a daemon, as with `qemu:///system`."""
    parts = urlsplit(settings.libvirt_uri)
    return settings.vm_backend == "libvirt" and parts.scheme.startswith("qemu") and parts.path != "/embed"


def require_libvirtd(uri: str) -> None:
    """Raise InstanceError if the libvirtd does not answer."""
    with _connected(uri):
        pass


def save_definitions(uri: str, instance_id: str, folder: Path, *, delete: bool) -> None:
    """Write each definition as `<name>.xml` into the folder. `delete`: what is there of other machines.

    Raise InstanceError, OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _connected(uri) as connection:
        found = {f"{domain.name()}.xml": _definition(domain) for domain in _domains(connection, instance_id)}
    for name, xml in found.items():
        write_private(folder / name, xml)
    for path in folder.iterdir() if delete else ():
        if path.name not in found:
            path.unlink()


def define_machines(uri: str, folder: Path) -> None:
    """Define the machines of all files of the folder; those that are there are replaced. Raise InstanceError."""
    with _connected(uri) as connection:
        for path in sorted(folder.glob("*.xml")):
            connection.defineXML(path.read_text())


def undefine_machines(uri: str, instance_id: str) -> None:
    """Undefine the machines of an instance that is removed. Idempotent. Raise InstanceError."""
    from vmbackend.libvirt.domain import undefine_domain

    with _connected(uri) as connection:
        for domain in _domains(connection, instance_id):
            undefine_domain(domain)


@contextmanager
def _connected(uri: str) -> Iterator[Any]:
    """Raise InstanceError for every error of libvirt."""
    import libvirt  # only commands that need it load it

    libvirt.registerErrorHandler(_say_nothing, None)
    try:
        connection = libvirt.open(uri)
        try:
            yield connection
        finally:
            connection.close()
    except libvirt.libvirtError as error:
        raise InstanceError(f"The libvirtd at {uri}, which has the machines' definitions: {error}.") from error


def _say_nothing(context: object, error: object) -> None:
    """Say nothing: libvirt would print what is raised, too."""


def _domains(connection: Any, instance_id: str) -> list[Any]:
    from vmbackend.libvirt.domain import name_for

    prefix = name_for(instance_id, "")
    return [domain for domain in connection.listAllDomains() if domain.name().startswith(prefix)]


def _definition(domain: Any) -> str:
    """Return the definition for the next start."""
    import libvirt

    return str(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE))
