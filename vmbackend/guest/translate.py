"""Translation of asyncssh's and socket errors to vmbackend.errors.

SFTP version 3 has few error codes, and OpenSSH's server maps many errno values to them: `no such file` also stands for
ENOTDIR and ELOOP, `bad message` for ENAMETOOLONG and EINVAL, and `failure` for all others, ENOSPC included. Callers
that need to distinguish them query the guest again (see `transfer.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import asyncssh

from vmbackend.errors import BackendError, GuestPathExists, GuestPathInvalid, GuestPathNotFound, GuestUnreachable

UNREACHABLE = "The machine's control channel does not answer."


class UnnamedFailure(GuestPathInvalid):
    """The guest's file server reported `failure` without a reason."""


@contextmanager
def translate_errors(path: str = "") -> Iterator[None]:
    """Run the body; it raises only BackendError (and cancellation). `path`: what the message names, if anything."""
    try:
        yield
    except BackendError:
        raise
    except (asyncssh.SFTPNoConnection, asyncssh.SFTPConnectionLost) as error:
        raise GuestUnreachable(UNREACHABLE) from error
    except asyncssh.SFTPError as error:
        raise _of_sftp(error, path) from error
    except asyncssh.HostKeyNotVerifiable as error:
        raise GuestUnreachable("The machine's control channel has an unexpected host key.") from error
    except asyncssh.PermissionDenied as error:
        raise GuestUnreachable("The machine's control channel rejects the platform's key.") from error
    except (asyncssh.Error, OSError, EOFError, TimeoutError, asyncio.InvalidStateError) as error:
        raise GuestUnreachable(UNREACHABLE) from error
    except UnicodeError as error:
        if path:
            raise GuestPathInvalid("The path contains characters that cannot be encoded.") from error
        raise GuestUnreachable(UNREACHABLE) from error  # what the guest said of itself is no text
    except (ValueError, AssertionError, AttributeError) as error:
        # asyncssh raises these for a channel that was closed by the guest (a writer that is None, a closed file
        # object).
        raise GuestUnreachable(UNREACHABLE) from error


def _of_sftp(error: asyncssh.SFTPError, path: str) -> BackendError:
    if isinstance(error, asyncssh.SFTPNoSuchFile | asyncssh.SFTPNoSuchPath):
        return GuestPathNotFound(f"There is no {path!r} inside the machine.")
    if isinstance(error, asyncssh.SFTPFailure):
        return UnnamedFailure(f"The machine rejected the operation on {path!r}.")
    if isinstance(error, asyncssh.SFTPFileAlreadyExists):
        return GuestPathExists(f"{path!r} exists already.")
    if isinstance(error, asyncssh.SFTPPermissionDenied):
        return GuestPathInvalid(f"The machine does not permit the operation on {path!r}.")
    if isinstance(error, asyncssh.SFTPBadMessage) and error.reason != "Bad message":
        # Raised by asyncssh itself for a protocol violation; the server's own message is exactly "Bad message".
        return GuestUnreachable("The machine's file server violates the protocol.")
    return GuestPathInvalid(f"{path!r} is not accepted as a path by the machine.")
