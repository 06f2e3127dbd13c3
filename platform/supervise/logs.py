"""The command that follows the log files of an instance with one `tail -F` for each, which handles rotation and files
to come.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

# A line is shown so long after it was written, at most.
POLL_SECONDS = 0.2

Show = Callable[[str, str], None]  # name of the process, line


@contextmanager
def followed(logs: Iterable[Path], show: Show, *, tail_lines: int = 0) -> Iterator[threading.Event]:
    """Call `show` with each new line of `logs`, from threads, until the end of the block.

    Begins with the last `tail_lines` of each. Yields an event that is set once following has ended by itself: `show`
    raised BrokenPipeError, so no reader is left.
    """
    ended = threading.Event()
    tails = [(path.stem, _start_tail(path, tail_lines)) for path in logs]
    threads = [threading.Thread(target=_show_lines, args=(*tail, show, ended), daemon=True) for tail in tails]
    for thread in threads:
        thread.start()
    try:
        yield ended
    finally:
        for _, tail in tails:
            tail.terminate()
            tail.wait()
        for thread in threads:
            thread.join(2)


def _start_tail(path: Path, lines: int) -> subprocess.Popen[bytes]:
    # --pid: it ends with this process, also if that is killed. -s: for file systems on which nothing notifies it.
    own = str(os.getpid())
    command = ["tail", "-F", "-n", str(lines), "-s", str(POLL_SECONDS), "--pid", own, "--", str(path)]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )


def _show_lines(name: str, tail: subprocess.Popen[bytes], show: Show, ended: threading.Event) -> None:
    assert tail.stdout is not None  # noqa: S101 - narrows the type
    with tail.stdout as lines:
        for line in lines:
            try:
                show(name, line.decode(errors="replace").rstrip("\r\n"))
            except BrokenPipeError:
                ended.set()
                return
