"""Assignment of a warm machine on the host: its files, its network, its guest.

A machine that waits for its assignment has the mark `unassigned`. From the removal of that mark to the answer of its
guest it has the mark `loading`: what a death leaves then is ended when the driver opens again.
"""

from __future__ import annotations

import logging
from typing import Any

from vmbackend.driver import MachineSpec
from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.attachment import NetworkAttachment
from vmbackend.libvirt.power import Power
from vmbackend.libvirt.provisioner import Provisioner
from vmbackend.libvirt.record import MachineDir

log = logging.getLogger(__name__)


class Assigner:
    """Assigns machines that are paused. The driver checks states before."""

    def __init__(self, provisioner: Provisioner, attachment: NetworkAttachment, power: Power) -> None:
        self._provisioner = provisioner
        self._attachment = attachment
        self._power = power

    def assign(self, target: Any, files: MachineDir, spec: MachineSpec) -> None:
        """Do what `Driver.assign` does. On failure the process has ended."""
        with self._power.assigning(target, files) as assign_guest:
            try:
                files.loading.touch(0o600)
                self._provisioner.describe_again(spec, files)
            except OSError as error:
                log.exception("machine %s: its files cannot be changed", spec.id)
                raise BackendUnavailable("The machine's files could not be written.") from error
            # Before the CPUs go on: no packet passes by the rules of nobody's machine.
            self._attachment.change_policy(spec.id, spec.network)
            assign_guest()
            self._attachment.add_neighbour(files.read_record())
            files.loading.unlink(missing_ok=True)
