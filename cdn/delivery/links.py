"""Links below `STATE/cdn/live`: the edge delivers linked files without a process of ours.

`<f|a>/<file_id>/<name>` leads to the file in the local store. With a store that speaks S3 there are no links.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cdn.delivery.addresses import ATTACHMENT, INLINE, Address
from cdn.storage.keys import checked_id
from cdn.storage.places import FOLDER_MODE, cdn_folder

if TYPE_CHECKING:
    from cdn.models import File

# Tries to make a link. If its folder is removed at the same moment, one of them fails.
_TRIES = 3


def link_make(address: Address, target: Path) -> None:
    """Deliver a file of the local store. The row is locked and active: `withdraw_links` comes before this or after it.

    Idempotent: an existing link is replaced. Raise OSError.
    """
    folder = cdn_folder("live") / address.kind / checked_id(address.file_id)
    for left in reversed(range(_TRIES)):
        try:
            _link_put(folder, address.name, target)
        except FileNotFoundError:
            # The worker removes links of an account that was inactive a moment ago.
            if not left:
                raise
        else:
            return


def _link_put(folder: Path, name: str, target: Path) -> None:
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    # File names never begin with a dot.
    beside = folder / f".{secrets.token_hex(8)}"
    beside.symlink_to(os.path.relpath(target, folder))
    beside.replace(folder / name)


def withdraw_links(file: File) -> None:
    """Remove the links of a file and its variants: the edge's next request asks the api, which refuses it.

    Call this with the row locked, in its new state, before the commit. Idempotent. Raise OSError.
    """
    remove_links(file.pk)


def remove_links(file_id: str) -> None:
    """Remove the links of a file whose row may be gone.

    If several processes do it at once, each goes on to the end. Raise OSError.
    """
    for kind in (INLINE, ATTACHMENT):
        folder = cdn_folder("live") / kind / checked_id(file_id)
        with suppress(FileNotFoundError):
            for name in os.listdir(folder):  # noqa: PTH208 - names alone
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()


def list_links() -> Iterator[str]:
    """Return the ids of the files that have links."""
    found = set()
    for kind in (INLINE, ATTACHMENT):
        with suppress(FileNotFoundError):
            found.update(os.listdir(cdn_folder("live") / kind))  # noqa: PTH208 - names alone
    return iter(sorted(found))
