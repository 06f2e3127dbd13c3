"""`python -m supervise.supervisord`: supervisord with log files that outlast a full disk, and with listening sockets
that outlive the processes behind them (supervise/listeners.py).

As published it ends when a line cannot be written: the error is reported on stderr, which is on the same disk, and that
error ends the main loop. The processes would live on without anyone to restart them.
"""

from __future__ import annotations

import sys
import time
import traceback
from contextlib import suppress
from typing import Any

from supervisor import loggers, supervisord

from supervise.listeners import keep_sockets_open


class LogFile(loggers.RotatingFileHandler):  # type: ignore[misc]  # the package has no types
    """A rotating log. Lines that cannot be written are lost, which the log says once there is room again. Raises
    nothing.
    """

    _lost = False

    def emit(self, record: Any) -> None:
        lost, self._lost = self._lost, False
        super().emit(record)
        if lost and not self._lost:
            self._write_note()

    def handleError(self) -> None:
        """Called within the `except` of a line that was not written."""
        self._lost = True
        if not isinstance(sys.exception(), OSError | ValueError):  # ValueError: closed by a failed rotation
            with suppress(OSError):
                traceback.print_exc()

    def doRollover(self) -> None:
        try:
            super().doRollover()
        except (OSError, ValueError):
            # Closing writes what is buffered, and the new file needs an inode: both may fail half way.
            with suppress(OSError):
                self.stream = open(self.baseFilename, "ab")  # noqa: SIM115, PTH123 - open until the next rotation

    def _write_note(self) -> None:
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        try:
            self.stream.write(f"{now} Lines before this one were lost: the log could not be written.\n".encode())
            self.stream.flush()
        except (OSError, ValueError):
            self._lost = True


def main() -> None:
    """Run supervisord with the arguments of this process. Return when it has stopped."""
    loggers.RotatingFileHandler = LogFile
    keep_sockets_open()
    supervisord.main()


if __name__ == "__main__":
    main()
