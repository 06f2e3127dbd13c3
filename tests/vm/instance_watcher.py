"""`python -m tests.vm.instance_watcher FOLDER`: when its standard input ends, removes what is left of an instance.

The test run holds the other end, so this happens also after a kill -9 of it.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

from supervise import control
from supervise.instance import load_instance
from supervise.removal import remove_instance
from tests.small_disk import SMALL_DISK, unmount


def main(folder: Path) -> None:
    """Block until no process holds the pipe any more; then remove the instance of `folder`, the folder, and the file
    system of its own that it may be on.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    if (folder / "s").exists():
        instance = load_instance(folder / "s")
        control.stop_instance(instance, lambda _: None)
        remove_instance(instance, lambda _: None)
    if folder.is_mount():
        subprocess.run(["umount", "--lazy", str(folder)], check=False)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.parent.name.startswith(SMALL_DISK):
        unmount(folder.parent)
        folder.parent.rmdir()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
