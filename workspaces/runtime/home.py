"""The directory where paths of the runtime begin that a request leaves out."""

from __future__ import annotations

from vmbackend.guest.session import GuestSession
from workspaces.data_plane.fields import MAX_PATH

SECONDS = 10.0
# Of the environment that commands have, which is the image's and the workspace's own.
_ASK = 'printf "%s" "$HOME"'


async def home_directory(session: GuestSession) -> str:
    """Return the home of commands, as the guest says it; the root if that is no path."""
    said = (await session.execute(_ASK, timeout=SECONDS, max_output=MAX_PATH)).stdout
    path = said.decode("utf-8", "surrogateescape")
    return path if path.startswith("/") and "\0" not in path and len(said) < MAX_PATH else "/"
