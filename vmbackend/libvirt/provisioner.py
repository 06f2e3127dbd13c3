"""Provisioning of machines: from a specification to directory, firewall entry and definition."""

from __future__ import annotations

import logging
import secrets
from pathlib import Path
from typing import Any, Literal

from vmbackend.bootlog import begin_boot_log, clear_boot_log
from vmbackend.driver import MachineIdentity, MachineSpec, MachineState
from vmbackend.errors import BackendUnavailable, ImageNotFound, InvalidMachineState
from vmbackend.guest.bootconfig import CONTROL_PORT, FW_CFG_NAME, GuestConfig, encode_config, generate_host_key
from vmbackend.guest.kit import KERNEL_ARGS, find_kit
from vmbackend.libvirt import disks, domain
from vmbackend.libvirt.confinement import Confinement
from vmbackend.libvirt.disk_making import DiskMaker
from vmbackend.libvirt.disks import write_atomically
from vmbackend.libvirt.domainxml import DomainDefinition, domain_xml, vcpus_for
from vmbackend.libvirt.firewall import mac_for
from vmbackend.libvirt.host_tsc import HostTsc
from vmbackend.libvirt.layers import remove_others
from vmbackend.libvirt.network import Network
from vmbackend.libvirt.network_maintainer import port_for
from vmbackend.libvirt.record import MACHINE_ID, Chain, MachineDir, Record
from vmbackend.libvirt.saved_state import SavedStateManager
from vmbackend.libvirt.settings import LibvirtSettings, StoredImage

# QEMU's minimal firmware for direct kernel boots; SeaBIOS takes 0.1 s longer under emulation. Part of QEMU's packages;
# a host without it boots with SeaBIOS.
FIRMWARE = Path("/usr/share/qemu/qboot.rom")
# QEMU finds translated code by its virtual address: with randomized ones it translates the loader and the C library
# with every program that is started. (From QEMU 8.0 on it does not.) An owner may switch it on: it is a sysctl.
EMULATED_ARGS = " norandmaps"

log = logging.getLogger(__name__)


class Provisioner:
    """Creates and updates one instance's machines. `domain_type` is set when the driver opens."""

    def __init__(
        self,
        settings: LibvirtSettings,
        network: Network,
        saved_state: SavedStateManager,
        confinement: Confinement,
        disk_maker: DiskMaker,
    ) -> None:
        self._settings = settings
        self._saved_state = saved_state
        self._network = network
        self._confinement = confinement
        self._disks = disk_maker
        self._tsc = HostTsc()
        self.domain_type: Literal["kvm", "qemu", "test"] = "qemu"

    def prepare(self, connection: Any, spec: MachineSpec) -> MachineIdentity:
        """Do what `Driver.prepare` does."""
        files = MachineDir(self._settings.machines_dir, spec.id)
        record = files.read_record()
        image = self._check(connection, spec, files)
        if record is not None:
            return self._apply_spec(connection, spec, files, image, record)
        try:
            return self._apply_spec(connection, spec, files, image, None)
        except BaseException:
            self._undo(connection, spec, files)
            raise

    def describe_again(self, spec: MachineSpec, files: MachineDir) -> None:
        """Write the files of a machine whose process becomes this one's: a new log, another configuration. Definition,
        disk and host key stay. Raise OSError, BackendUnavailable.
        """
        clear_boot_log(files.boot_log)
        begin_boot_log(files.boot_log, spec.image_changes)
        files.change_epoch(spec.epoch)
        self._configure(files, spec)

    def _check(self, connection: Any, spec: MachineSpec, files: MachineDir) -> StoredImage:
        """Make all checks, before anything is written."""
        if not MACHINE_ID.fullmatch(spec.id):
            raise BackendUnavailable("The machine's id contains invalid characters.")
        self._network.check_address(spec.ip)
        existing = self._disks.domains.find_or_none(connection, spec.id)
        state = MachineState.ABSENT if existing is None else self._saved_state.state(existing, files)
        if state not in (MachineState.OFF, MachineState.ABSENT):
            raise InvalidMachineState("The machine runs or sleeps: stop it first.")
        if files.epoch() not in (None, 0, spec.epoch):
            raise InvalidMachineState("The machine's files here are those of another assignment.")
        disks.check_disk_size(spec.disk_mb)
        image = self._settings.images.get(spec.image)
        if image is None:
            raise ImageNotFound("The machine's image is not on this host.")
        self._disks.check(files, spec)
        return image

    def _apply_spec(
        self, connection: Any, spec: MachineSpec, files: MachineDir, image: StoredImage, former: Record | None
    ) -> MachineIdentity:
        files.create()
        if not spec.boot.keep_logs:
            clear_boot_log(files.boot_log)
        begin_boot_log(files.boot_log, spec.image_changes)
        size, chain = self._disks.make(connection, files, spec, former)
        public_key = self._configure(files, spec)
        record = Record(
            id=spec.id,
            ip=spec.ip,
            image=spec.image,
            cpus=spec.cpus,
            memory_mb=spec.memory_mb,
            disk_mb=size,
            network=spec.network,
            generation=former.generation_for(spec.network) if former else secrets.randbits(31),
            chain=chain,
            epoch=spec.epoch,
        )
        xml = domain_xml(self._definition(spec, files, image, chain))
        # Record before firewall and definition: after a death from here on, the record says what to remove.
        files.write_record(record)
        if not self._settings.is_test:
            self._network.attach(port_for(record), port_for(former) if former else None)
        # Left by a machine that the hypervisor lost: that memory does not match the new definition.
        self._saved_state.drop_all(files)
        domain.define_domain(connection, xml)
        domain.drop_saved_memory(self._disks.domains.find(connection, spec.id))
        remove_others(files, chain)
        return MachineIdentity(ip=spec.ip, ssh_host_key=public_key, control_port=CONTROL_PORT)

    def _configure(self, files: MachineDir, spec: MachineSpec) -> str:
        if files.host_key.exists() and files.public_key.exists():
            public_key = files.public_key.read_text().strip()
        else:
            public_key = generate_host_key(files.host_key)
            write_atomically(files.public_key, public_key.encode())
        config = GuestConfig(
            boot=spec.boot,
            address=f"{spec.ip}/{self._settings.subnet.prefixlen}",
            gateway=self._settings.gateway,
            dns=(self._settings.gateway,),
            host_key=files.host_key.read_bytes(),
            authorized_key=self._settings.control_public_key,
        )
        write_atomically(files.config, _encoded(config))
        files.mark_unassigned(spec.boot.unassigned)
        return public_key

    def _definition(self, spec: MachineSpec, files: MachineDir, image: StoredImage, chain: Chain) -> DomainDefinition:
        instance = self._settings.instance
        kit, confinement = find_kit(self._settings.kit_dir), self._confinement
        return DomainDefinition(
            name=domain.name_for(instance, spec.id),
            uuid=domain.uuid_for(instance, spec.id),
            instance=instance,
            machine_id=spec.id,
            domain_type=self.domain_type,
            vcpus=vcpus_for(spec.cpus),
            memory_mb=spec.memory_mb,
            firmware=FIRMWARE if FIRMWARE.exists() else None,
            kernel=confinement.readable_file(kit.kernel),
            initrd=confinement.readable_file(kit.initrd),
            kernel_args=self._kernel_args(),
            fw_cfg_name=FW_CFG_NAME,
            fw_cfg_file=confinement.path_for(files.config),
            base_disk=confinement.readable_file(image.rootfs),
            data_layers=tuple((each.format, confinement.path_for(files.path / each.file)) for each in chain.layers),
            direct_io=disks.direct_io_works(files.path),
            bridge=self._network.bridge,
            tap=self._network.tap_for(spec.ip),
            mac=mac_for(spec.ip),
            agent_socket=confinement.path_for(files.agent_socket),
            events_pipe=confinement.path_for(files.events_pipe),
            requests_pipe=confinement.path_for(files.requests_pipe),
            console_pipe=confinement.path_for(files.console_pipe),
            label=confinement.label(spec.ip),
        )

    def _kernel_args(self) -> str:
        """Return the kernel's arguments with the frequency of the TSC: a guest that measures it while the host is busy
        keeps a wrong clock.

        Under KVM the guest learns it from the hypervisor, and EMULATED_ARGS cost nothing to be without.
        """
        return KERNEL_ARGS + (EMULATED_ARGS + self._tsc.kernel_args() if self.domain_type == "qemu" else "")

    def _undo(self, connection: Any, spec: MachineSpec, files: MachineDir) -> None:
        """Undo a first preparation that failed; what cannot be removed is an orphan for `delete`."""
        try:
            existing = self._disks.domains.find_or_none(connection, spec.id)
            if existing is not None:
                domain.undefine_domain(existing)
            if not self._settings.is_test:
                self._network.detach(spec.ip, spec.id)
            files.remove()
        except Exception:
            log.exception("machine %s: a failed preparation could not be undone", spec.id)


def _encoded(config: GuestConfig) -> bytes:
    try:
        return encode_config(config)
    except ValueError as error:
        # The platform validates users' input, so this is a bug; the message does not contain the input.
        raise BackendUnavailable("The machine's boot configuration cannot be encoded.") from error
