"""`python -m supervise COMMAND`: the commands behind the Makefile."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable

from config.env import Env
from supervise import commands
from supervise.files import UMASK
from supervise.instance import Instance, InstanceError, load_instance
from supervise.prepare import build_default_image, build_guest_kernel, build_guest_kit, prepare_instance

COMMANDS: dict[str, Callable[[Instance], int]] = {
    "run": commands.run,
    "up": commands.up,
    "down": commands.down,
    "status": commands.print_status,
    "logs": commands.follow_logs,
    "env": commands.print_environment,
    "clean": commands.clean,
    "leave": commands.leave_platform,
}
WITH_ARGUMENTS: dict[str, Callable[..., int]] = {
    "backup": commands.back_up,
    "host-token": commands.host_token,
    "manage": commands.manage,
}
STEPS: dict[str, Callable[[Instance, Env], None]] = {
    "prepare": prepare_instance,
    "kit": lambda _, settings: build_guest_kit(settings),
    "kernel": lambda _, settings: build_guest_kernel(settings),
    "image": lambda _, settings: build_default_image(settings),
}
_FULL = "The disk is full: free some room and run this command again."
_DISK_PROBLEMS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: "The file system of the state folder is read-only; see the kernel's log for an error of its disk.",
}


def main() -> int:
    """Parse the command line and run one command. Errors of the instance are printed without a traceback."""
    os.umask(UMASK)
    parser = argparse.ArgumentParser(prog="supervise")
    parser.add_argument("command", choices=[*COMMANDS, *STEPS, *WITH_ARGUMENTS, "restore"])
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    try:
        if given.command == "restore":
            return commands.restore_backup(*given.arguments)
        instance = load_instance()
        if given.command in WITH_ARGUMENTS:
            return WITH_ARGUMENTS[given.command](instance, *(item for item in given.arguments if item != "--"))
        if given.command in STEPS:
            STEPS[given.command](instance, instance.settings())
            return 0
        return COMMANDS[given.command](instance)
    except InstanceError as error:
        print(f"{error}", file=sys.stderr)  # noqa: T201
        return 1
    except OSError as error:
        if error.errno not in _DISK_PROBLEMS:
            raise
        print(_DISK_PROBLEMS[error.errno], file=sys.stderr)  # noqa: T201
        return 1


if __name__ == "__main__":
    sys.exit(main())
