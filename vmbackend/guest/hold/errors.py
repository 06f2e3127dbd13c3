"""The hold's failures as errors of the platform."""

from __future__ import annotations

from vmbackend.errors import BackendError, GuestCommandInvalid, GuestPathInvalid, GuestUnreachable

from .frames import Failure


class HoldUnsupported(BackendError):
    """The machine was started with a kit that has no hold, or one of another version."""

    code = "hold_unsupported"


class RequestUnknown(GuestUnreachable):
    """The machine was started with a kit whose hold does not know the request; it was not carried out."""


class TerminalNotFound(BackendError):
    """No such terminal: closed, forgotten ten minutes after its end, or the guest restarted."""

    code = "terminal_not_found"


class WatchNotFound(BackendError):
    """No such watch: it ended with its folder."""

    code = "watch_not_found"


class TaskNotFound(BackendError):
    """No such task: removed, forgotten some time after its end, or of another machine."""

    code = "task_not_found"


class NotConnected(BackendError):
    """Nothing listens at the port, or what listens accepts no connection."""

    code = "not_connected"


class TerminalEnded(BackendError):
    """The terminal's program has ended; its output can still be read."""

    code = "terminal_ended"


class TerminalLimit(BackendError):
    """The guest has as many terminals, watches or unanswered requests as it may."""

    code = "terminal_limit"
    retryable = True


class InputFull(BackendError):
    """The program does not read its input, of which 1 MiB waits."""

    code = "input_full"
    retryable = True


ERRORS: dict[int, type[BackendError]] = {
    Failure.BAD_REQUEST: RequestUnknown,
    Failure.BAD_VERSION: HoldUnsupported,
    Failure.NO_TERMINAL: TerminalNotFound,
    Failure.NO_WATCH: WatchNotFound,
    Failure.NO_TASK: TaskNotFound,
    Failure.CANNOT_WATCH: GuestPathInvalid,
    Failure.TOO_MANY: TerminalLimit,
    Failure.INPUT_FULL: InputFull,
    Failure.ENDED: TerminalEnded,
    Failure.BAD_SIZE: GuestCommandInvalid,
    Failure.BAD_OFFSET: GuestCommandInvalid,
    Failure.CANNOT_START: GuestCommandInvalid,
    Failure.CANNOT_CONNECT: NotConnected,
}
MAX_REASON = 200


def make_error(code: int, reason: bytes) -> BackendError:
    """Return the error for a failure; its message has a hostile guest's words, but printable."""
    words = reason[:MAX_REASON].decode("utf-8", "replace")
    text = "".join(letter if letter.isprintable() else "?" for letter in words)
    return ERRORS.get(code, GuestUnreachable)(f"The machine refused: {text}.")
