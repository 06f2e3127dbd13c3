"""Operations on libvirt domains. The one place where libvirt's errors become errors of this package."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
_UNDEFINE = libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA


def is_connection_error(error: Any) -> bool:
    """Whether libvirt was not reached, rather than asked in vain."""
    return error.get_error_code() in _CONNECTION


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """libvirt's error as ours; libvirt's own words, which name paths of the host, go to the log."""
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
        # libvirt's binding cannot make an exception of a message with bytes of a guest in it that are no UTF-8.
        log.exception("libvirt: %s", what)
        raise BackendUnavailable(f"The hypervisor could not {what} the machine.") from error


def uuid_for(instance: str, machine_id: str) -> str:
    """The same for one machine at all times, so a redefinition replaces and a lookup needs no list."""
    return str(uuid.uuid5(_UUID_NAMESPACE, f"{instance}/{machine_id}"))


def name_for(instance: str, machine_id: str) -> str:
    return f"mvm-{instance}-{machine_id}"


class Domains:
    """The domains of one instance, over a connection that the caller passes each time (it may be a new one)."""

    def __init__(self, instance: str) -> None:
        self._instance = instance

    def find(self, connection: Any, machine_id: str) -> Any:
        """Raises MachineNotFound."""
        with translate_errors("find"):
            return connection.lookupByUUIDString(uuid_for(self._instance, machine_id))

    def find_or_none(self, connection: Any, machine_id: str) -> Any:
        try:
            return self.find(connection, machine_id)
        except MachineNotFound:
            return None

    def list(self, connection: Any) -> dict[str, Any]:
        """Machine id -> domain, of this instance only."""
        with translate_errors("list"):
            domains = connection.listAllDomains()
        found = {}
        for domain in domains:
            machine_id = self._machine_id(domain)
            if machine_id is not None:
                found[machine_id] = domain
        return found

    def machine_id(self, domain: Any) -> str | None:
        """From the name alone, so that it works for a domain that is gone."""
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
    """The state as libvirt knows it; ABSENT where the domain went meanwhile."""
    try:
        with translate_errors("ask for"):
            state = _STATES.get(domain.state()[0])
            if state is not None:
                return state
            return MachineState.ASLEEP if domain.hasManagedSaveImage() else MachineState.OFF
    except MachineNotFound:
        return MachineState.ABSENT


def stop_reason_of(domain: Any) -> StopReason:
    """Why a domain that is off is off. What libvirt does not know (a host that went down) is a crash."""
    with translate_errors("ask for"):
        return _SHUTOFF_REASONS.get(domain.state()[1], StopReason.CRASHED)


def define_domain(connection: Any, xml: str) -> None:
    with translate_errors("define"):
        connection.defineXML(xml)


def start_domain(domain: Any, flags: int) -> None:
    """Harmless where it has a process. On failure it is off. With VIR_DOMAIN_START_PAUSED its CPUs stay stopped."""
    try:
        with translate_errors("start"):
            domain.createWithFlags(flags)
    except InvalidMachineState:
        if state_of(domain) not in (MachineState.RUNNING, MachineState.PAUSED):
            raise BackendUnavailable("The hypervisor could not start the machine.") from None


def resume_domain(domain: Any) -> None:
    """Let the CPUs of a machine that was brought up with them stopped go on."""
    with translate_errors("resume"):
        if state_of(domain) is MachineState.PAUSED:
            domain.resume()


def destroy_domain(domain: Any) -> None:
    """End the process and drop saved memory. Off or gone succeeds."""
    try:
        if domain.isActive():
            domain.destroy()
    except libvirt.libvirtError as error:
        if error.get_error_code() not in {*_GONE, libvirt.VIR_ERR_OPERATION_INVALID}:
            with translate_errors("end"):
                raise
    drop_saved_memory(domain)


def has_saved_memory(domain: Any) -> bool:
    """Whether libvirt keeps a managed image of it. None and gone have none."""
    try:
        with translate_errors("ask for"):
            return domain is not None and bool(domain.hasManagedSaveImage())
    except MachineNotFound:
        return False


def drop_saved_memory(domain: Any) -> None:
    try:
        with translate_errors("forget the saved memory of"):
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
    """Press it. A machine that is off already does not mind."""
    try:
        with translate_errors("shut down"):
            domain.shutdown()
    except (MachineNotFound, InvalidMachineState):
        return


def set_cpu_quota(domain: Any, cpus: float) -> bool:
    """A quota on the whole process. False where the host's cgroups do not allow it: it runs without."""
    quota = {"global_period": _QUOTA_PERIOD_US, "global_quota": max(1000, int(cpus * _QUOTA_PERIOD_US))}
    try:
        domain.setSchedulerParametersFlags(quota, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    except libvirt.libvirtError as error:
        log.debug("cpu quota: %s", error)
        return False
    return True
