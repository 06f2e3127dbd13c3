"""Operations on libvirt domains, and the translation of libvirt's errors."""

from __future__ import annotations

import errno
import logging
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

from vmbackend.driver import MachineState, StopReason
from vmbackend.errors import BackendUnavailable, InvalidMachineState, MachineNotFound
from vmbackend.libvirt.domainxml import machine_id_from_xml

log = logging.getLogger(__name__)

_UUID_NAMESPACE = uuid.UUID("5d1f3f0e-6f59-4a5a-9c0e-2f4d8f5c6a11")
_QUOTA_PERIOD_US = 100_000

_STATES = {
    libvirt.VIR_DOMAIN_RUNNING: MachineState.RUNNING,
    libvirt.VIR_DOMAIN_BLOCKED: MachineState.RUNNING,
    libvirt.VIR_DOMAIN_SHUTDOWN: MachineState.RUNNING,  # powering off; its process is there
    libvirt.VIR_DOMAIN_PAUSED: MachineState.PAUSED,
    libvirt.VIR_DOMAIN_PMSUSPENDED: MachineState.PAUSED,
}
_SHUTOFF_REASONS = {
    libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN: StopReason.SHUTDOWN,
    libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED: StopReason.DESTROYED,
    libvirt.VIR_DOMAIN_SHUTOFF_SAVED: StopReason.SAVED,
}
_GONE = {libvirt.VIR_ERR_NO_DOMAIN}
_CONNECTION = {
    libvirt.VIR_ERR_NO_CONNECT,
    libvirt.VIR_ERR_INVALID_CONN,
    libvirt.VIR_ERR_RPC,
    libvirt.VIR_ERR_SYSTEM_ERROR,
}
_SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_UNDEFINE = libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA


def is_connection_error(error: Any) -> bool:
    """Return whether the connection failed, rather than the call."""
    return error.get_error_code() in _CONNECTION


def is_shortage(error: Any) -> bool:
    """Return whether the host lacked something that it may have again: disk space, inodes, memory, descriptors."""
    return any(os.strerror(number) in str(error) for number in _SHORTAGES)


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Raise libvirt's errors as BackendError; libvirt's messages, which contain paths of the host, are logged only."""
    try:
        yield
    except libvirt.libvirtError as error:
        code = error.get_error_code()
        if code in _GONE:
            raise MachineNotFound("The machine is not known to the hypervisor.") from error
        log.error("libvirt: %s: %s", what, error)
        if is_connection_error(error):
            raise BackendUnavailable("The connection to the hypervisor failed.") from error
        if code == libvirt.VIR_ERR_OPERATION_INVALID:
            raise InvalidMachineState(f"The machine's state does not allow to {what} it.") from error
        raise BackendUnavailable(f"The hypervisor could not {what} the machine.") from error
    except SystemError as error:
        # The binding raises this for a message that contains a guest's bytes which are not UTF-8.
        log.exception("libvirt: %s", what)
        raise BackendUnavailable(f"The hypervisor could not {what} the machine.") from error


@contextmanager
def translate_errors_of(target: Any, what: str) -> Iterator[None]:
    """Do what `translate_errors` does, for work in which libvirt reads its own description of a machine that runs.

    That has the size of the balloon of memory as root of the guest says it, and libvirt reads no impossible one. Only
    another process of the machine ends that, so trying again does not help: raise InvalidMachineState.
    """
    try:
        with translate_errors(what):
            yield
    except BackendUnavailable as error:
        if _has_impossible_balloon(target):
            raise InvalidMachineState(
                f"The machine says an impossible size of its memory, so the hypervisor cannot {what} it: restart it."
            ) from error
        raise


def _has_impossible_balloon(target: Any) -> bool:
    try:
        described = ET.fromstring(target.XMLDesc(0))  # noqa: S314 - libvirt's own output
    except (libvirt.libvirtError, ET.ParseError):
        return False
    return int(described.findtext("currentMemory", "0")) > int(described.findtext("memory", "0"))


def uuid_for(instance: str, machine_id: str) -> str:
    """Return the UUID derived from the machine's id, so that a new definition replaces the old one and a lookup needs
    no list.
    """
    return str(uuid.uuid5(_UUID_NAMESPACE, f"{instance}/{machine_id}"))


def name_for(instance: str, machine_id: str) -> str:
    return f"mvm-{instance}-{machine_id}"


class Domains:
    """The domains of one instance. The caller passes the present connection to each call."""

    def __init__(self, instance: str) -> None:
        self._instance = instance

    def find(self, connection: Any, machine_id: str) -> Any:
        """Raise MachineNotFound."""
        with translate_errors("find"):
            return connection.lookupByUUIDString(uuid_for(self._instance, machine_id))

    def find_or_none(self, connection: Any, machine_id: str) -> Any:
        try:
            return self.find(connection, machine_id)
        except MachineNotFound:
            return None

    def list(self, connection: Any) -> dict[str, Any]:
        """Return the domains of this instance by machine id."""
        with translate_errors("list"):
            domains = connection.listAllDomains()
        found = {}
        for domain in domains:
            machine_id = self._machine_id(domain)
            if machine_id is not None:
                found[machine_id] = domain
        return found

    def machine_id(self, domain: Any) -> str | None:
        """Return the id from the domain's name, so that it works for a removed domain."""
        prefix = name_for(self._instance, "")
        name = str(domain.name())
        return name.removeprefix(prefix) if name.startswith(prefix) else None

    def _machine_id(self, domain: Any) -> str | None:
        if self.machine_id(domain) is None:
            return None
        try:
            return machine_id_from_xml(domain.XMLDesc(0), self._instance)
        except libvirt.libvirtError:
            return None  # undefined since it was listed


def state_of(domain: Any) -> MachineState:
    """Return the state in libvirt; ABSENT if the domain was removed."""
    try:
        with translate_errors("query"):
            state = _STATES.get(domain.state()[0])
            if state is not None:
                return state
            return MachineState.ASLEEP if domain.hasManagedSaveImage() else MachineState.OFF
    except MachineNotFound:
        return MachineState.ABSENT


def stop_reason_of(domain: Any) -> StopReason:
    """Return why a domain is off. If libvirt does not know (the host was restarted), it is a crash."""
    with translate_errors("query"):
        return _SHUTOFF_REASONS.get(domain.state()[1], StopReason.CRASHED)


def stop_reason_or_lost(domain: Any) -> StopReason:
    """Return what `stop_reason_of` returns; LOST for None and for a domain that was removed."""
    if domain is None:
        return StopReason.LOST
    try:
        return stop_reason_of(domain)
    except MachineNotFound:
        return StopReason.LOST


def define_domain(connection: Any, xml: str) -> None:
    with translate_errors("define"):
        connection.defineXML(xml)


def start_domain(domain: Any, flags: int) -> None:
    """Start the domain. Idempotent. On failure the domain is off. With VIR_DOMAIN_START_PAUSED its CPUs stay
    stopped.
    """
    try:
        with translate_errors("start"):
            domain.createWithFlags(flags)
    except InvalidMachineState:
        if state_of(domain) not in (MachineState.RUNNING, MachineState.PAUSED):
            raise BackendUnavailable("The hypervisor could not start the machine.") from None


def resume_domain(domain: Any) -> None:
    """Let the CPUs of a paused domain continue."""
    with translate_errors("resume"):
        if state_of(domain) is MachineState.PAUSED:
            domain.resume()


def destroy_domain(domain: Any) -> None:
    """End the process and drop managed saved memory. Idempotent."""
    try:
        if domain.isActive():
            domain.destroy()
    except libvirt.libvirtError as error:
        if error.get_error_code() not in {*_GONE, libvirt.VIR_ERR_OPERATION_INVALID}:
            with translate_errors("stop"):
                raise
    drop_saved_memory(domain)


def has_saved_memory(domain: Any) -> bool:
    """Return whether libvirt has a managed save image of the domain. False for None and a removed domain."""
    try:
        with translate_errors("query"):
            return domain is not None and bool(domain.hasManagedSaveImage())
    except MachineNotFound:
        return False


def drop_saved_memory(domain: Any) -> None:
    try:
        with translate_errors("drop the saved memory of"):
            if domain.hasManagedSaveImage():
                domain.managedSaveRemove()
    except MachineNotFound:
        return


def undefine_domain(domain: Any) -> None:
    try:
        with translate_errors("undefine"):
            domain.undefineFlags(_UNDEFINE)
    except MachineNotFound:
        return


def press_power_button(domain: Any) -> None:
    """Press the power button. No effect on a machine that is off.

    By itself libvirt asks the guest's agent first, and waits a minute for one that hangs.
    """
    try:
        with translate_errors("shut down"):
            try:
                domain.shutdownFlags(libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
            except libvirt.libvirtError as error:
                if error.get_error_code() != libvirt.VIR_ERR_INVALID_ARG:
                    raise
                domain.shutdown()  # a hypervisor that knows one way only
    except (MachineNotFound, InvalidMachineState):
        return


def set_cpu_quota(domain: Any, cpus: float) -> bool:
    """Set a CPU quota on the whole process. False if the host's cgroups do not support it; the machine runs without."""
    quota = {"global_period": _QUOTA_PERIOD_US, "global_quota": max(1000, int(cpus * _QUOTA_PERIOD_US))}
    try:
        domain.setSchedulerParametersFlags(quota, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    except libvirt.libvirtError as error:
        log.debug("cpu quota: %s", error)
        return False
    return True
