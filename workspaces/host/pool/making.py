"""Making one warm machine: prepared, started, ready, used once, paused."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import asdict

from django.conf import settings
from django.db import transaction

from vmbackend.backend import open_session
from vmbackend.driver import Boot, Driver, MachineIdentity, MachineSpec
from vmbackend.errors import BackendError, GuestUnreachable
from vmbackend.guest.session import GuestAddress
from vmbackend.host_states import takes_new
from vmbackend.models import Host
from vmbackend.policy import NetworkPolicy
from workspaces import warm_machines
from workspaces.models import WarmMachine
from workspaces.placement import free_address, uncommitted_memory, warm_memory
from workspaces.warm_machines import PoolShape

logger = logging.getLogger(__name__)

COMMAND_SECONDS = 30.0
# Nothing reaches the machine but this host, and it reaches nothing.
CLOSED = NetworkPolicy(allow_internet=False, ingress_ports=(65535,))


@transaction.atomic
def reserve_machine(host_id: str, shape: PoolShape, *, digest: str, kit: str, claim: str) -> WarmMachine | None:
    """Insert the row of a machine, with an address. None if the host takes none, or has no memory left over for it.

    Creates lock the host's row, too, before they choose an address.
    """
    host = Host.objects.select_for_update(no_key=True).filter(takes_new(), pk=host_id).first()
    if host is None or uncommitted_memory(host) - warm_memory(host) < shape.memory_mb:
        return None
    return warm_machines.insert_machine(host, free_address(host), shape, digest=digest, kit=kit, claim=claim)


def make_machine(driver: Driver, machine: WarmMachine) -> bool:
    """Make the machine of a row. Return False if it was retired meanwhile; the caller removes what is retired.

    Raise BackendError; the row is as it was then.
    """
    began = time.monotonic()
    identity = driver.prepare(_unassigned_spec(machine))
    driver.start(machine.pk)
    driver.wait_ready(machine.pk, settings.ENV.ready_seconds)
    asyncio.run(_run_command(machine.pk, identity))
    driver.pause(machine.pk)
    sample = driver.samples([machine.pk]).get(machine.pk)
    if sample is None:
        raise GuestUnreachable("The machine's counters cannot be read.")
    columns = {"ssh_host_key": identity.ssh_host_key, "control_port": identity.control_port}
    made = warm_machines.record_ready(machine, counters=asdict(sample), **columns)
    logger.info("pool: %s of %s in %.1f s", machine.pk, machine.image, time.monotonic() - began)
    return made


def _unassigned_spec(machine: WarmMachine) -> MachineSpec:
    return MachineSpec(
        id=machine.pk,
        image=machine.image_digest,
        cpus=machine.cpu_millis / 1000,
        memory_mb=machine.memory_mb,
        disk_mb=machine.disk_size_mb,
        ip=machine.ip,
        epoch=0,
        network=CLOSED,
        boot=Boot(hostname=machine.pk.replace("_", "-"), unassigned=True),
    )


async def _run_command(machine_id: str, identity: MachineIdentity) -> None:
    """Run a command, so that what the first one loads is in memory, and close the connection.

    Raise GuestUnreachable, BackendError.
    """
    address = GuestAddress(machine_id, identity.ip, identity.control_port, identity.ssh_host_key)
    session = open_session(address)
    try:
        result = await session.execute("exit 0", timeout=COMMAND_SECONDS)
    finally:
        await session.close()
    if result.exit_code:
        raise GuestUnreachable("A new machine could not run a command.")


def retire_failed(machine: WarmMachine, error: BackendError) -> None:
    """Retire a machine that could not be made."""
    logger.warning("a warm machine of %s could not be made: %s", machine.image, error.message)
    warm_machines.retire_machine(machine.pk)
