"""The links below `STATE/cdn/live`: what has one is delivered by the edge, and nothing else is."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from cdn.delivery.addresses import ATTACHMENT, INLINE
from cdn.storage.keys import checked_id
from cdn.storage.places import cdn_folder

if TYPE_CHECKING:
    from cdn.models import File


def links_withdraw(file: File) -> None:
    """Remove the links of a file and its variants: the edge's next request asks the api, which refuses it.

    Called with the row locked, in its new state, before the commit. Idempotent. Raises OSError.
    """
    links_remove(file.pk)


def links_remove(file_id: str) -> None:
    """As `links_withdraw`, of a file whose row may be gone."""
    for kind in (INLINE, ATTACHMENT):
        folder = cdn_folder("live") / kind / checked_id(file_id)
        if folder.is_dir():
            shutil.rmtree(folder)
