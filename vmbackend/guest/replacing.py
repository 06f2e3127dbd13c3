"""Replacing a file by the kit's programs: only if it is what was read, and with all that it has beside its bytes."""

from __future__ import annotations

from posixpath import basename, dirname

from vmbackend.errors import GuestCommandInvalid, GuestFileChanged, GuestKitOutdated, GuestPathInvalid

from .changes import MAX_MESSAGE
from .command_results import KitCommand, require_end
from .session import ANY_CONTENT
from .translate import UnnamedFailure

_CHANGED, _DIRECTORY, _LOCKED = 3, 4, 5
_GONE = 3  # of `guest attributes`: there is no file at the target any more
# $0: busybox, $1: the hash or "any", $2: the new file, $3: its target. Nothing of the platform replaces the target
# between the look and the rename, as all do so with the folder's lock.
_SCRIPT = """
[ ! -d "$3" ] || exit 4
if [ "$1" != any ]; then
    [ -f "$3" ] && found=$("$0" sha256sum <"$3") && [ "${found%% *}" = "$1" ] || exit 3
fi
exec "$0" mv -f "$2" "$3"
"""


async def keep_attributes(run: KitCommand, partial: str, target: str) -> None:
    """Give `partial` the owner, the extended attributes and the mode of `target`, in the same folder.

    An older kit has no such program: the file server has given it owner and mode. Raise UnnamedFailure.
    """
    arguments = ["attributes", f"./{basename(target)}", f"./{basename(partial)}"]
    try:
        done = require_end(await run("helper", arguments, dirname(target), b"", MAX_MESSAGE))
    except GuestKitOutdated:
        return
    except GuestCommandInvalid as error:  # the folder is gone, for one
        raise UnnamedFailure(f"The machine cannot replace {target!r}.") from error
    if done.exit_code not in (0, _GONE):
        raise UnnamedFailure(f"The machine cannot replace {target!r}.")


async def move_expected(run: KitCommand, busybox: str, partial: str, target: str, expected: str) -> bool:
    """Rename `partial` to `target`, both in one folder, if that has the SHA-256 `expected`, or ANY_CONTENT.

    False if the machine was started with a kit that has no such program; nothing was renamed then. Raises
    GuestFileChanged, GuestPathInvalid (a directory; a program of the machine has the folder's lock), UnnamedFailure
    (the reason is to be found), DeadlineExceeded, GuestBusy.
    """
    names = [f"./{basename(partial)}", f"./{basename(target)}"]
    arguments = ["locked", ".", busybox, "sh", "-c", _SCRIPT, busybox, expected, *names]
    try:
        done = require_end(await run("helper", arguments, dirname(target), b"", MAX_MESSAGE))
    except GuestKitOutdated:
        return False
    except GuestCommandInvalid as error:  # the folder is gone, for one
        raise UnnamedFailure(f"The machine cannot replace {target!r}.") from error
    if done.exit_code == 0:
        return True
    if done.exit_code == _CHANGED and expected != ANY_CONTENT:
        raise GuestFileChanged("The file was changed by somebody else.")
    if done.exit_code == _DIRECTORY:
        raise GuestPathInvalid(f"{target!r} is a directory.")
    if done.exit_code == _LOCKED:
        raise GuestPathInvalid(f"A program of the machine has locked {dirname(target)!r}.")
    raise UnnamedFailure(f"The machine cannot replace {target!r}.")
