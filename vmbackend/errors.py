"""Everything the hypervisor side can fail with.

One exception class per meaning; each carries a stable `code` and one sentence that a person can act on.
Backends translate their own errors (libvirt, skopeo, ssh, nft) at one boundary each into these, so no caller
ever sees a libvirt or asyncssh exception. None of these imports Django.
"""

from __future__ import annotations

from typing import ClassVar


class BackendError(Exception):
    """Base of all errors of this package.

    `code` is stable and machine readable; `sentence` is shown to the owner of the machine, so it holds no secret
    and no path of the host. `retryable` says whether the same call may succeed later without anybody's doing.
    """

    code: ClassVar[str] = "backend_error"
    retryable: ClassVar[bool] = False

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class BackendUnavailable(BackendError):
    """The hypervisor does not answer (connection lost, libvirt not open)."""

    code = "backend_unavailable"
    retryable = True


class MachineNotFound(BackendError):
    """No machine of that id is known to the hypervisor."""

    code = "machine_not_found"


class InvalidMachineState(BackendError):
    """The machine is not in a state in which the call makes sense."""

    code = "invalid_machine_state"


class SavedMemoryUnusable(BackendError):
    """A sleeping machine's memory cannot be loaded. It was dropped: the next start is a cold one."""

    code = "saved_memory_unusable"


class NoRoom(BackendError):
    """The host lacks memory or disk room. Raised before anything is started or written."""

    code = "no_room"
    retryable = True


class DeadlineExceeded(BackendError):
    """The call's deadline passed."""

    code = "deadline_exceeded"
    retryable = True


class MachineExited(BackendError):
    """The machine ended while something waited for it. `exit_code` is that of the main process, if it said one."""

    code = "machine_exited"
    retryable = True

    def __init__(self, sentence: str, *, exit_code: int | None = None) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


class ImageError(BackendError):
    """Base of what can be wrong with an image."""

    code = "image_error"


class ImageNotFound(ImageError):
    """The registry answered, and has no such image (or does not show it to us)."""

    code = "image_not_found"


class ImageUnreachable(ImageError):
    """The registry did not answer."""

    code = "image_unreachable"
    retryable = True


class ImageWrongPlatform(ImageError):
    """The image exists, but not for this host's architecture or operating system."""

    code = "image_wrong_platform"


class ImageTooLarge(ImageError):
    """The image's unpacked size is above the limit."""

    code = "image_too_large"


class ImageBroken(ImageError):
    """The image's layers could not be unpacked."""

    code = "image_broken"


class GuestUnreachable(BackendError):
    """The guest's control channel does not answer."""

    code = "guest_unreachable"
    retryable = True


class GuestPathNotFound(BackendError):
    """No such path inside the guest."""

    code = "path_not_found"


class GuestPathInvalid(BackendError):
    """The path exists but cannot serve (a directory where a file is wanted, a device, a symlink loop)."""

    code = "path_invalid"


class GuestDiskFull(BackendError):
    """The guest's own disk is full. Nothing was replaced."""

    code = "guest_disk_full"


class GuestCommandInvalid(BackendError):
    """The command cannot be started (no such program, no such user or working directory)."""

    code = "command_invalid"
