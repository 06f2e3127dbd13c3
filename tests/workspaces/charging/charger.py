"""A worker that only charges, in processes to be killed: `test_killed.py` runs it as a module.

For each line that it reads it begins a process that charges without end, and prints its number; at the next line that
process must have ended. The time that Django takes to start is spent once.
"""

from __future__ import annotations

import os
import signal
import sys

import django

LIFE_SECONDS = 60  # of a process that its test did not kill


def main(batch: int) -> None:
    """Serve until the end of the input. `batch`: records in one transaction."""
    django.setup()
    from workspaces.charging import services

    services.BATCH = batch
    say("ready")
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            signal.alarm(LIFE_SECONDS)
            while True:
                services.charge_metered()
        say(child)
        os.waitpid(child, 0)
        say("ended")


def say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
