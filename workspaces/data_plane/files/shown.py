"""Content of files as JSON carries it."""

from __future__ import annotations

import base64

from workspaces.data_plane.files.lines import numbered
from workspaces.data_plane.files.services import TEXT_LIMIT, FilePart


def shown_content(part: FilePart, *, with_numbers: bool) -> dict[str, str]:
    """Return the text of lines, or base64 of their bytes if these are not UTF-8. Raise PayloadTooLarge."""
    try:
        text = part.content.decode()
    except UnicodeDecodeError:
        return {"content": base64.b64encode(part.content).decode(), "encoding": "base64"}
    return {"content": numbered(text, part.first, 2 * TEXT_LIMIT) if with_numbers else text}
