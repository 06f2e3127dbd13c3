"""`python -m tests.vmbackend.libvirt_watcher`: removes orphans of a killed test process from the host.

Each line of its standard input names one driver's instance, subnet and folders. The test process holds the other end of
the pipe, so the input also ends when it is killed. A folder that does not exist was removed by its test.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace

from tests.vmbackend.libvirt_factory import tear_down


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for line in sys.stdin.readlines():
        known = json.loads(line)
        machines = Path(known["machines_dir"])
        if machines.parent.exists():
            subnet = IPv4Network(known["subnet"])
            tear_down(SimpleNamespace(instance=known["instance"], address="", subnet=subnet, machines_dir=machines))  # type: ignore[arg-type]
        shutil.rmtree(known["root"], ignore_errors=True)


if __name__ == "__main__":
    main()
