"""Detached machines are reaped at once, other children are not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, subprocess, sys, time
from pathlib import Path
from vmbackend.libvirt import reaper

reaper.start_reaper()
reaper.start_reaper()
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(write, str(os.getpid()).encode())
        os.execv(sys.argv[1], [sys.argv[1], "0.3"])
    os._exit(0)
os.wait()
detached = int(os.read(read, 20))
for _ in range(40):
    assert subprocess.run(["sh", "-c", "exit 7"]).returncode == 7
assert subprocess.run([sys.argv[1], "0.1"]).returncode == 0
assert subprocess.run([sys.argv[1], "none"], stderr=subprocess.DEVNULL, start_new_session=True).returncode == 1
deadline = time.monotonic() + 120
while Path(f"/proc/{detached}").exists():
    assert time.monotonic() < deadline, "not reaped"
    time.sleep(0.01)
"""


def test_a_detached_machine_is_reaped_and_children_of_others_keep_their_exit_codes(tmp_path: Path) -> None:
    machine = tmp_path / "qemu-system-test"
    shutil.copy("/bin/sleep", machine)
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(machine)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"},
    )
    assert (ran.returncode, ran.stderr) == (0, "")
