"""The files that the edge shows to a CA: one for each challenge under way, named by its token.

A folder of its own, in which nothing else is; the edge serves names of the form of `TOKEN` from it and nothing
below.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from django.conf import settings

from certificates.models import Certificate
from edge.challenges import TOKEN, challenges_folder

# Longer than between the making of a file and the row's knowing of it, and than a temporary file is there.
_KEPT_SECONDS = 3600


def write_token(token: str, content: str) -> None:
    """Show `content` under the token, whole or not at all. Idempotent. Raise OSError, and ValueError for a strange
    token.
    """
    path = _path(token)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Its name has a dot, so it is never served.
    temporary = path.with_name(f".{token}.{os.getpid()}.{time.monotonic_ns()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def remove_token(token: str) -> None:
    """Remove a token; without effect if there is none."""
    if TOKEN.fullmatch(token):
        _path(token).unlink(missing_ok=True)


def prune_tokens() -> None:
    """Remove what no order under way needs: left by processes that died, or by an order with several challenges.

    Files of the last hour stay; also one of a time to come, as a clock that was set back leaves it, is removed.
    """
    folder = challenges_folder(settings.STATE)
    files = folder.iterdir() if folder.is_dir() else ()
    found = [path for path in files if abs(time.time() - path.lstat().st_mtime) > _KEPT_SECONDS]
    needed = set(Certificate.objects.exclude(challenge_token="").values_list("challenge_token", flat=True))
    for path in found:
        if path.name not in needed:
            path.unlink(missing_ok=True)


def _path(token: str) -> Path:
    if not TOKEN.fullmatch(token):
        raise ValueError("not a token")
    return challenges_folder(settings.STATE) / token
