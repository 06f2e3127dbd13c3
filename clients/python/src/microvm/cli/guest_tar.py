"""Archives of folders in a workspace, made and taken there by a program: one stream for a whole tree."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from posixpath import join as joined
from secrets import token_hex
from threading import Event
from typing import Any, cast

from microvm.cli.failures import CommandError
from microvm.cli.packing import ROOT
from microvm.commands import CommandEvent, CommandExit
from microvm.errors import ApiError, ConnectionFailed, ServiceFailed
from microvm.sync.client import Microvm

SECONDS = 86400.0  # of the service; a copy ends with `ws`
MOST_SAID = 64 << 10  # bytes
MOST_REST = 1 << 20  # bytes after the end of an archive
# The platform brings its own; the image's is the second choice.
BUSYBOX = "/run/kit/bin/busybox"
NOT_FOUND = 127
Parts = Callable[[], Iterator[bytes]]  # from the first byte on, at each call
Fill = Callable[[str], None]
NO_ARCHIVE = b"\xff" * 1024  # which every tar refuses, as not all do with nothing
READY = "ready"  # said once there is a folder to fill
# Beside the target until all is there: a copy that is given up leaves what was there.
TAKE = f"""
set -e
if [ -x {BUSYBOX} ]; then
  for name in tar mv mkdir rm; do eval "$name() {{ {BUSYBOX} $name \\"\\$@\\"; }}"; done
fi
target=$PWD/$1 stage=$PWD/$2
mkdir -p -- "${{target%/*}}"
(umask 077; mkdir -- "$stage")
trap 'rm -rf -- "$stage" || {{ sleep 1; rm -rf -- "$stage"; }}' EXIT
trap 'exit 1' HUP INT TERM PIPE
echo {READY}
tar -xpof - -C "$stage"
if [ ! -e "$target" ] && [ ! -L "$target" ]; then
  mv -- "$stage/{ROOT}" "$target"
elif [ -d "$target" ]; then
  (cd "$stage/{ROOT}"; tar -cf - .) | (cd "$target"; tar -xpof -)
else
  echo "something else of this name is there" >&2; exit 3
fi
"""


class ArchiveOfGuest:
    """A folder as the workspace sends it. `said`: what its program says of what it leaves out."""

    def __init__(self, client: Microvm, workspace: str, path: str) -> None:
        self._events = _run(client, workspace, ["tar", "-cf", "-", "."], path, None)
        self._rest = b""
        self._said = bytearray()
        self._end: CommandExit | None = None

    def read(self, size: int) -> bytes:
        """At most so many bytes; none at the end. Raises ApiError, ConnectionFailed."""
        while not self._rest and self._end is None:
            self._take_event()
        part, self._rest = self._rest[:size], self._rest[size:]
        return part

    def finish(self) -> list[tuple[str, str]]:
        """Return what was left out, with the reason. Raise CommandError if the program failed or does not end."""
        rest = 0
        while self._end is None:
            rest += len(self.read(MOST_SAID))
            if rest > MOST_REST:
                raise CommandError("The folder's archive does not end.", "What was written before is whole.")
        return self._left_out(self._end)

    def require_success(self) -> None:
        """Raises CommandError where the program has ended, and failed."""
        if self._end is not None:
            self._left_out(self._end)

    def _left_out(self, end: CommandExit) -> list[tuple[str, str]]:
        said = [line for line in self._said.decode(errors="replace").splitlines() if line]
        if end.exit_code not in (0, 1) or (end.exit_code and not said):
            reason = said[-1] if said else f"code {end.exit_code}"
            raise CommandError(f"The folder could not be read: {reason}", "Copy the parts of it that can be read.")
        return [_complaint(line) for line in said]

    def close(self) -> None:
        """End the program, if it runs still."""
        self._events.close()

    def _take_event(self) -> None:
        event = next(self._events)
        if isinstance(event, CommandExit):
            self._end = event
        elif event.stream == "stdout":
            self._rest = event.data
        else:
            self._said += event.data[: MOST_SAID - len(self._said)]


def take_archive(client: Microvm, workspace: str, target: str, parts: Parts, fill: Fill | None = None) -> None:
    """Unpack an archive of `packing` in a workspace, as `target`. Into a folder that is there, its entries replace
    others; until all has come nothing is changed. `fill` puts something into the folder before the archive does.

    Raises CommandError, ApiError, ConnectionFailed, and what `parts` and `fill` raise.
    """
    relative = target.strip("/")
    stage = joined(relative.rpartition("/")[0], f".ws-{token_hex(8)}.part")
    filling = _Filling(f"/{stage}", parts, fill)
    said = bytearray()
    words = ["sh", "-c", TAKE, "sh", relative, stage]
    with closing(filling), closing(_run(client, workspace, words, "/", filling.parts)) as events:
        for event in events:
            if isinstance(event, CommandExit):
                filling.require_filled()
                _require_taken(event, said.decode(errors="replace").strip())
                return
            if event.stream == "stdout":
                filling.begin()
            else:
                said += event.data[: MOST_SAID - len(said)]


class _Filling:
    """The input of the program that takes an archive. It begins once the program has said that it is ready."""

    def __init__(self, stage: str, parts: Parts, fill: Fill | None) -> None:
        self._stage, self._parts, self._fill = stage, parts, fill
        self._is_ready = Event()
        self._newest = 0
        self._failure: Exception | None = None

    def require_filled(self) -> None:
        """Raises what `fill` has raised."""
        if self._failure is not None:
            raise self._failure

    def begin(self) -> None:
        self._is_ready.set()

    def close(self) -> None:
        """End those that wait: they give nothing."""
        self._newest = 0
        self._is_ready.set()

    def parts(self) -> Iterator[bytes]:
        """Yield the archive; that of an earlier call, whose program was not found, waits for nothing any more."""
        self._newest += 1
        return self._given(self._newest)

    def _given(self, number: int) -> Iterator[bytes]:
        if self._fill is not None:
            self._is_ready.wait()
            if number != self._newest:
                return
            try:
                self._fill(self._stage)
            except Exception as error:  # raised again by `require_filled`, once the program has failed of it
                self._failure = error
                yield NO_ARCHIVE
                return
        yield from self._parts()


def is_passing(error: Exception) -> bool:
    """Whether the same copy may succeed once the service is back."""
    return isinstance(error, ConnectionFailed) or (isinstance(error, ServiceFailed) and error.status in (502, 503, 504))


def _require_taken(end: CommandExit, said: str) -> None:
    if end.exit_code == 0:
        return
    last = said.splitlines()[-1] if said else f"code {end.exit_code}"
    hint = "Nothing was changed there. Check the path, and whether the disk has room: `ws exec WORKSPACE -- df -h`."
    raise CommandError(f"The folder could not be written: {last}", hint)


def _run(
    client: Microvm, workspace: str, words: list[str], folder: str, parts: Parts | None
) -> Generator[CommandEvent, None, None]:
    """By the platform's own programs; where there are none, by the image's. As root, as files are written."""
    body = cast(Any, {"working_dir": folder, "user": "root", "timeout_seconds": SECONDS})
    try:
        yield from client.workspaces.exec_stream(
            workspace, cmd=[BUSYBOX, *words], stdin_parts=parts and parts(), **body
        )
    except ApiError as error:
        if not (isinstance(error.details, dict) and error.details.get("exit_code") == NOT_FOUND):
            raise
        yield from client.workspaces.exec_stream(workspace, cmd=words, stdin_parts=parts and parts(), **body)


def _complaint(line: str) -> tuple[str, str]:
    """`tar: ./name: reason` as a name and the reason."""
    name, _, reason = line.removeprefix("tar: ").partition(": ")
    return (name.removeprefix("./"), reason) if reason else ("A part", line)
