"""`python -m config.supervise run|up|down|status|logs|prepare|env|manage`: the commands behind the
Makefile.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from config.instance import ROOT, Instance, InstanceError, load_instance
from config.supervise import control, show
from config.supervise.clean import remove
from config.supervise.conf import process_environment
from config.supervise.database import read_credentials
from config.supervise.demo import DemoError, first_workspace, run_command, show_summary, wait_until_serving
from config.supervise.follow import follow
from config.supervise.leftovers import MARKER
from config.supervise.prepare import default_image, guest_kernel, guest_kit, prepare
from config.supervise.processes import processes

READY_SECONDS = 120.0
PARTS: dict[str, Callable[[Instance, Mapping[str, str]], None]] = {
    "prepare": prepare,
    "kit": lambda _, settings: guest_kit(settings),
    "kernel": lambda _, settings: guest_kernel(settings),
    "image": lambda _, settings: default_image(settings),
}


class Stopped(Exception):
    """Somebody asked this command to end (Ctrl-C, SIGTERM, the terminal closed)."""


def run(instance: Instance) -> int:
    """Everything in the foreground, until Ctrl-C or SIGTERM; then everything has stopped."""
    settings = instance.environment()
    with _stoppable() as ignore_signals:
        try:
            prepare(instance, settings)
            with control.exclusive(instance):
                if control.supervisor_pid(instance):
                    raise InstanceError("This instance runs already: `make logs` follows it, `make down` stops it.")
                supervisor = control.start(instance, settings, tied=True)
        except Stopped:
            # Between fork and the assignment above a signal may strike; the sweep finds what was started.
            ignore_signals()
            _stop(instance)
            return 130
        try:
            return _foreground(instance, settings, supervisor)
        except Stopped:
            return 0
        finally:
            ignore_signals()
            _stop(instance)


def up(instance: Instance) -> int:
    """Everything in the background; returns when it serves. Harmless where it runs already."""
    settings = instance.environment()
    prepare(instance, settings)
    with control.exclusive(instance):
        if control.supervisor_pid(instance):
            show.say("runs already")
        else:
            control.start(instance, settings, tied=False)
    return 0 if _greet(instance) else 1


def down(instance: Instance) -> int:
    """Stop every process of this instance. Machines go on or stop as PLATFORM_STOP_VMS_ON_DOWN says."""
    show.say("stopped" if _stop(instance) else "was not running")
    return 0


def clean(instance: Instance) -> int:
    """Stop this instance and remove all of it from the host: machines, bridge, firewall, state folder."""
    _stop(instance)
    remove(instance, show.say)
    return 0


def status(instance: Instance) -> int:
    """One line for each process; exit code 3 where the instance does not run, 1 where a process is not up."""
    rows = control.states(instance)
    if not rows:
        show.block(f"instance {instance.id} ({instance.state}) is down")
        return 3
    show.block(f"instance {instance.id} ({instance.state}) at {instance.environment()['PLATFORM_BASE_URL']}")
    for row in rows:
        show.block(f"  {row.name:<8} {row.state:<9} {row.description}")
    return 0 if all(row.state == "RUNNING" for row in rows) else 1


def logs(instance: Instance) -> int:
    """The last lines of every log, then new ones as they come, until Ctrl-C."""
    with _stoppable():
        try:
            follow(_logs(instance, instance.environment()), show.line, threading.Event(), tail_lines=20)
        except (Stopped, BrokenPipeError):
            return 0
    return 0


def env(instance: Instance) -> int:
    """Shell lines that export this instance's settings: `eval "$(make -s env)"`."""
    for key, value in sorted(instance.environment().items()):
        show.block(f"export {key}={shlex.quote(value)}")
    return 0


def manage(instance: Instance, arguments: list[str]) -> int:
    """`manage.py` with this instance's settings."""
    environment = process_environment(instance, instance.environment())
    environment.pop(MARKER)
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    os.execve(command[0], command, environment)  # noqa: S606 - no shell is wanted


def _foreground(instance: Instance, settings: Mapping[str, str], supervisor: subprocess.Popen[bytes]) -> int:
    ended = threading.Event()
    reader = threading.Thread(target=follow, args=(_logs(instance, settings), show.line, ended), daemon=True)
    reader.start()
    try:
        _greet(instance)
        show.say("Ctrl-C stops everything.")
        supervisor.wait()
        show.say(f"supervisord ended with {supervisor.returncode}; see {instance.run_dir}/supervisord.log")
        return 1
    finally:
        ended.set()
        reader.join(2)


def _greet(instance: Instance) -> bool:
    """Wait until the API answers, make the first workspace and tell how to use the platform.

    Returns whether that workspace works. Raises InstanceError where the API does not come up.
    """
    credentials = read_credentials(instance.credentials_file)
    if not wait_until_serving(credentials["BASE_URL"], READY_SECONDS):
        waiting = [row.name for row in control.states(instance) if row.state != "RUNNING"]
        names = ", ".join(waiting) or "the API"
        raise InstanceError(f"{names} did not come up in {READY_SECONDS:.0f} s; see {instance.log_dir}.")
    workspace = None
    try:
        workspace = first_workspace(credentials)
        run_command(credentials, workspace)
    except DemoError as error:
        reason = str(error).rstrip(".")
        show.say(f"The first workspace does not work yet: {reason}. `make doctor` looks at the host.")
        show_summary(credentials, workspace)
        return False
    show_summary(credentials, workspace)
    return True


def _stop(instance: Instance) -> bool:
    with control.exclusive(instance):
        return control.stop(instance, show.say)


def _logs(instance: Instance, settings: Mapping[str, str]) -> list[Path]:
    return [instance.log_dir / f"{process.name}.log" for process in processes(instance, settings)]


@contextmanager
def _stoppable() -> Iterator[Callable[[], None]]:
    """Turn SIGINT, SIGTERM and SIGHUP into `Stopped`; yields a function after which they are ignored."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def ignore() -> None:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)

    def stopped(_number: int, _frame: FrameType | None) -> None:
        raise Stopped

    before = [signal.signal(number, stopped) for number in signals]
    try:
        yield ignore
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def main() -> int:
    """Parse the command line and run one command; errors of the instance are told in one sentence."""
    commands = {f.__name__: f for f in (run, up, down, status, logs, env, clean)}
    parser = argparse.ArgumentParser(prog="config.supervise")
    parser.add_argument("command", choices=[*commands, *PARTS, "manage"])
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    try:
        instance = load_instance()
        if given.command == "manage":
            return manage(instance, [item for item in given.arguments if item != "--"])
        if given.command in PARTS:
            PARTS[given.command](instance, instance.environment())
            return 0
        return commands[given.command](instance)
    except InstanceError as error:
        print(f"{error}", file=sys.stderr)  # noqa: T201
        return 1


if __name__ == "__main__":
    sys.exit(main())
