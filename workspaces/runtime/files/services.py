"""Changes of files for the holder of a runtime's token, as coroutines that take a guest's session."""

from __future__ import annotations

from posixpath import dirname

from vmbackend.errors import GuestPathExists
from vmbackend.guest.session import ANY_CONTENT, GuestSession
from workspaces import errors
from workspaces.data_plane.files.services import content_blocks
from workspaces.files.paths import displayed_path


async def file_write(
    session: GuestSession, *, path: str, content: bytes, create_dirs: bool, append: bool, mode: int | None
) -> int:
    """Replace a file, or write to its end; return its size. Without `create_dirs` its folder must be there.

    Raise GuestPathNotFound, GuestPathInvalid, PathInvalid, GuestDiskFull.
    """
    if path.endswith("/"):
        raise errors.PathInvalid(f"{displayed_path(path)!r} names a directory.")
    if create_dirs:
        await folder_ensure(session, path=dirname(path))
    else:
        await _require_folder(session, dirname(path))
    if append:
        return await session.append(path, content_blocks(content), mode=mode)
    return await session.write(path, content_blocks(content), mode=mode, expected=ANY_CONTENT)


async def folder_ensure(session: GuestSession, *, path: str, mode: int | None = None) -> None:
    """Create a folder with its parents; one that exists stays as it is. Raise PathInvalid for anything else there,
    GuestPathInvalid, GuestDiskFull.
    """
    if not path.strip("/"):
        return
    try:
        await session.make_directory(path, mode=mode)
    except GuestPathExists:
        await _require_folder(session, path)


async def _require_folder(session: GuestSession, path: str) -> None:
    """Raise GuestPathNotFound, PathInvalid unless there is a folder."""
    if (await session.stat(path)).type != "directory":
        raise errors.PathInvalid(f"{displayed_path(path)!r} is not a directory.")
