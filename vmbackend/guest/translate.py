"""The one boundary at which asyncssh's and the socket's errors become vmbackend.errors.

SFTP version 3 knows few error numbers, and OpenSSH's server folds many errno values into them: `no such file` also
stands for ENOTDIR and ELOOP, `bad message` for ENAMETOOLONG and EINVAL, and `failure` for all the rest, ENOSPC
included. Whoever needs to tell those apart asks the guest again (see `sftp.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import asyncssh

from vmbackend.errors import BackendError, GuestPathInvalid, GuestPathNotFound, GuestUnreachable

UNREACHABLE = "The machine's control channel does not answer."


class UnnamedFailure(GuestPathInvalid):
    """The guest's file server said `failure` without a reason."""


class GuestPathExists(GuestPathInvalid):
    """Something of that name stands in the way."""


@contextmanager
def translate_errors(path: str = "") -> Iterator[None]:
    """Run the body; only BackendError (and cancellation) comes out of it. `path` goes into the message."""
    try:
        yield
    except BackendError:
        raise
    except (asyncssh.SFTPNoConnection, asyncssh.SFTPConnectionLost) as error:
        raise GuestUnreachable(UNREACHABLE) from error
    except asyncssh.SFTPError as error:
        raise _of_sftp(error, path) from error
    except asyncssh.HostKeyNotVerifiable as error:
        raise GuestUnreachable("The machine's control channel shows a host key that is not its own.") from error
    except asyncssh.PermissionDenied as error:
        raise GuestUnreachable("The machine's control channel refuses the platform's key.") from error
    except (asyncssh.Error, OSError, EOFError, TimeoutError, asyncio.InvalidStateError) as error:
        raise GuestUnreachable(UNREACHABLE) from error
    except UnicodeError as error:
        raise GuestPathInvalid("The path holds characters that cannot be sent.") from error
    except (ValueError, AssertionError, AttributeError) as error:
        # asyncssh meets a channel that closed under it in several ways of its own (a writer that is None, a file object
        # that says it is closed); all of them mean that the guest went away.
        raise GuestUnreachable(UNREACHABLE) from error


def _of_sftp(error: asyncssh.SFTPError, path: str) -> BackendError:
    if isinstance(error, asyncssh.SFTPNoSuchFile | asyncssh.SFTPNoSuchPath):
        return GuestPathNotFound(f"There is no {path!r} inside the machine.")
    if isinstance(error, asyncssh.SFTPFailure):
        return UnnamedFailure(f"The machine refused the operation on {path!r}.")
    if isinstance(error, asyncssh.SFTPFileAlreadyExists):
        return GuestPathExists(f"{path!r} exists already.")
    if isinstance(error, asyncssh.SFTPPermissionDenied):
        return GuestPathInvalid(f"The machine does not permit the operation on {path!r}.")
    if isinstance(error, asyncssh.SFTPBadMessage) and error.reason != "Bad message":
        # asyncssh's own word for a server that breaks the protocol; the server's word is exactly "Bad message".
        return GuestUnreachable("The machine's file server breaks the protocol.")
    return GuestPathInvalid(f"{path!r} is no path the machine accepts.")
