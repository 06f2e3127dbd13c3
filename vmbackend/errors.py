"""The errors of the hypervisor side.

One exception class per meaning; each carries a stable `code` and one message that says what to do.
Backends translate their own errors (libvirt, skopeo, ssh, nft) at one boundary each into these, so no caller
ever sees a libvirt or asyncssh exception. None of these imports Django.
"""

from __future__ import annotations

from typing import ClassVar


class BackendError(Exception):
    """Base of all errors of this package.

    `code` is stable and machine readable; `message` is shown to the owner of the machine, so it contains no secret
    and no path of the host. `retryable`: whether the same call may succeed later without intervention.
    """

    code: str = "backend_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class HostNameHeld(BackendError):
    """Another machine reports under this host's name."""

    code = "host_name_held"


class HostRemoved(BackendError):
    """This machine joined, and is no host of the platform any more."""

    code = "host_removed"

    def __init__(self) -> None:
        super().__init__("This machine is no host of the platform any more: run `make leave`, then let it join again.")


class HostIsAlive(BackendError):
    """A host is not given up while its lease stands."""

    code = "host_is_alive"


class HostStateRefused(BackendError):
    """The host may not go from its state to that one."""

    code = "invalid_state"


class BackendUnavailable(BackendError):
    """The hypervisor cannot be reached, or a tool or file operation of the host failed."""

    code = "backend_unavailable"
    retryable = True


class MachineNotFound(BackendError):
    """No machine of that id is known to the hypervisor."""

    code = "machine_not_found"


class MachineSetAside(BackendError):
    """The machine on the host was a former copy of the workspace. Its files are kept there (`vmbackend.orphans`)."""

    code = "machine_set_aside"


class InvalidMachineState(BackendError):
    """The call is not allowed in the machine's present state."""

    code = "invalid_machine_state"


class SavedMemoryUnusable(BackendError):
    """A sleeping machine's memory cannot be loaded. It was dropped: the next start is a cold one."""

    code = "saved_memory_unusable"


class CapacityExceeded(BackendError):
    """The host lacks memory or disk space. Raised before anything is started or written.

    `resource`: what it lacks, by the name of the size: `disk_size_mb` or `memory_mb`.
    """

    code = "no_room"
    retryable = True

    def __init__(self, message: str, *, resource: str = "disk_size_mb") -> None:
        super().__init__(message)
        self.resource = resource


class GuestKitOutdated(BackendError):
    """The machine was started with a kit whose helper cannot do this; nothing was started."""

    code = "guest_kit_outdated"


class DeadlineExceeded(BackendError):
    """The call's deadline passed."""

    code = "deadline_exceeded"
    retryable = True


class GuestOutputNotRead(BackendError):
    """The reader of a command's output did not take it in time; the command was ended."""

    code = "guest_output_not_read"


class MachineExited(BackendError):
    """The machine stopped while a caller waited for it. `exit_code`: that of its main process, if it reported one."""

    code = "machine_exited"
    retryable = True

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class ImageError(BackendError):
    """Base of the errors of images."""

    code = "image_error"


class ImageNotFound(ImageError):
    """The registry answered and has no such image, or does not grant access to it."""

    code = "image_not_found"


class ImageUnreachable(ImageError):
    """The registry did not answer."""

    code = "image_unreachable"
    retryable = True


class ImageWrongPlatform(ImageError):
    """The image exists, but not for this host's architecture or operating system."""

    code = "image_wrong_platform"


class ImageTooLarge(ImageError):
    """The image's unpacked size exceeds the limit."""

    code = "image_too_large"


class ImageBroken(ImageError):
    """The image's layers could not be unpacked."""

    code = "image_broken"


class TemplateUnusable(BackendError):
    """A machine could not be started from a template. Never leaves a driver: it starts the machine cold."""

    code = "template_unusable"
    retryable = True


class TransferRefused(BackendError):
    """Another host is not the one that it should be, does not let this one fetch, or sent what is not allowed."""

    code = "transfer_refused"


class SnapshotNotFound(BackendError):
    """This host has no snapshot of that id."""

    code = "snapshot_not_found"


class SnapshotIncompatible(BackendError):
    """A snapshot's memory cannot be loaded on this host; its disk can. `Copied.compare_snapshot` says what differs."""

    code = "snapshot_incompatible"


class CopyUnproven(BackendError):
    """A machine that was loaded from a snapshot did not prove its own identity; its process was ended."""

    code = "copy_unproven"


class GuestUnreachable(BackendError):
    """The guest's control channel does not answer."""

    code = "guest_unreachable"
    retryable = True


class GuestBusy(BackendError):
    """All places for commands in the machine were taken for too long. Nothing was started."""

    code = "guest_busy"
    retryable = True


class GuestPathNotFound(BackendError):
    """No such path inside the guest."""

    code = "path_not_found"


class GuestPathInvalid(BackendError):
    """The path cannot be used for the operation (a directory instead of a file, a device, a symlink loop)."""

    code = "path_invalid"


class GuestPathExists(GuestPathInvalid):
    """The path exists already. Nothing was changed."""

    code = "path_exists"


class GuestFileChanged(BackendError):
    """The file is not any more what was expected of it. Nothing was changed."""

    code = "file_changed"
    retryable = True


class GuestDiskFull(BackendError):
    """The guest's own disk is full. Nothing was replaced."""

    code = "guest_disk_full"


class GuestCommandInvalid(BackendError):
    """The command cannot be started (no such program, no such user or working directory).

    `exit_code`: that of a shell for it, 127 if there is no such program, else 126; None if it was not tried.
    """

    code = "command_invalid"

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
