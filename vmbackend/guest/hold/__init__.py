"""Terminals and watches of a guest: terminals outlive connections, processes of the platform and the guest's sleep.

The guest's program `guest hold` has them, and runs commands to their end; the protocol is in vmbackend/guest/README.md,
"Held terminals and commands". The guest is hostile: whatever it sends costs at most its own connection, and memory up
to the windows and limits that the client granted.
"""

from .client import HoldClient, HoldSettings
from .errors import HoldUnsupported, InputFull, TerminalEnded, TerminalLimit, TerminalNotFound, WatchNotFound
from .kept_watches import KeptEvents, KeptWatch
from .terminal import HeldTerminal
from .terminal_fields import TerminalDetails, TerminalEntry, TerminalExit
from .watch import HeldWatch, WatchEvent, WatchKind

__all__ = [
    "HeldTerminal",
    "HeldWatch",
    "HoldClient",
    "HoldSettings",
    "HoldUnsupported",
    "InputFull",
    "KeptEvents",
    "KeptWatch",
    "TerminalDetails",
    "TerminalEnded",
    "TerminalEntry",
    "TerminalExit",
    "TerminalLimit",
    "TerminalNotFound",
    "WatchEvent",
    "WatchKind",
    "WatchNotFound",
]
