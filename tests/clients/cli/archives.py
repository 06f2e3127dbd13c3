"""Archives as a workspace sends them, and the steps of a service that runs the programs of a copy."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tests.clients.cli.test_commands import answer
from tests.clients.scripted_server import ScriptedRequest, Step, command_end, command_output, command_stream

FOLDER = answer(200, {"entries": [], "next_cursor": None})
NO_FOLDER = answer(404, {"code": "path_not_found", "message": "No."})
Entry = tuple[str, bytes | str, str, int]  # name, content or target, kind, mode
KINDS = {
    "file": tarfile.REGTYPE, "folder": tarfile.DIRTYPE, "link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE,
    "pipe": tarfile.FIFOTYPE, "device": tarfile.CHRTYPE,
}  # fmt: skip


def archive_of(*entries: Entry, **fields: Any) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content, kind, mode in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime = KINDS[kind], mode, 1_700_000_000
            if isinstance(content, str):
                info.linkname, content = content, b""
            info.size = len(content)
            for field, value in fields.items():
                setattr(info, field, value)
            archive.addfile(info, io.BytesIO(content))
    return sink.getvalue()


def sent(content: bytes, said: bytes = b"", code: int = 0, *, cut: bool = False) -> Step:
    """The workspace's program sends this, says that, and ends with the code; with `cut` its connection is lost."""
    events: Sequence[tuple[str, Any]] = [
        command_output("stdout", content[at : at + 30_000]) for at in range(0, len(content), 30_000)
    ]
    events = [*events, *([command_output("stderr", said)] if said else []), *([] if cut else [command_end(code)])]

    def step(request: ScriptedRequest) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # its reader may have had enough
            command_stream(*events, cut=cut)(request)

    return step
