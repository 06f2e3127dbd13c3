"""The commands on a whole instance. Each returns its exit code."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from config.env import Env
from supervise import control, output
from supervise.backup import restore, save
from supervise.configuration import process_environment
from supervise.demo import (
    DemoError,
    first_workspace,
    run_command,
    show_addresses,
    show_summary,
    wait_until_serving,
)
from supervise.files import read_env_file
from supervise.instance import ROOT, Instance, InstanceError
from supervise.logs import POLL_SECONDS, followed
from supervise.network import open_to_machines
from supervise.postgres import data_folder
from supervise.postgres_server import running_server
from supervise.prepare import prepare_instance
from supervise.processes import processes
from supervise.removal import remove_instance
from supervise.shown_lines import ShownLines
from supervise.state_folder import JOINED

READY_SECONDS = 120.0


class Stopped(Exception):
    """The signal that this command is to end: Ctrl-C, SIGTERM, or its terminal was closed."""


def run(instance: Instance) -> int:
    """Run everything in the foreground, until Ctrl-C or SIGTERM; then everything has stopped."""
    settings = instance.settings()
    with _stoppable() as ignore_signals:
        try:
            prepare_instance(instance, settings)
            with control.exclusive_control(instance):
                if control.supervisor_pid(instance):
                    raise InstanceError("This instance runs already: `make logs` follows it, `make down` stops it.")
                supervisor = control.start_supervisord(instance, settings, tied=True)
        except Stopped:
            # A signal may arrive between the fork and the assignment above; `stop` finds what was started.
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
    """Start everything in the background; return when it serves. Idempotent."""
    settings = instance.settings()
    prepare_instance(instance, settings)
    with control.exclusive_control(instance):
        if control.supervisor_pid(instance):
            output.print_message("runs already")
        else:
            control.start_supervisord(instance, settings, tied=False)
    works = _demonstrate(instance, hint="`make logs` follows the logs, `make down` stops everything.")
    return 0 if works else 1


def down(instance: Instance) -> int:
    """Stop every process of this instance. Machines keep running unless PLATFORM_STOP_VMS_ON_DOWN is set."""
    output.print_message("stopped" if _stop(instance) else "was not running")
    return 0


def clean(instance: Instance) -> int:
    """Stop this instance and remove all of it from the host: machines, bridge, firewall, state folder."""
    _stop(instance)
    remove_instance(instance, output.print_message)
    return 0


def back_up(instance: Instance, target: str = "") -> int:
    """Write a backup of this instance, which may run, below the folder `target`. Raise InstanceError."""
    if "control" not in instance.settings().machine_roles:
        raise InstanceError("This machine has joined another one, whose backup has the database: make it there.")
    output.print_message(f"{save.back_up(instance, target, output.print_message)} is complete")
    return 0


def restore_backup(source: str = "", state: str = "", port: str = "") -> int:
    """Make an instance of the backup `source` in the folder `state`; it does not run yet."""
    instance = restore.restore_backup(source, state, port, output.print_message)
    output.print_message(f"restored as instance {instance.id}; make up STATE={instance.state} starts it")
    return 0


def leave_platform(instance: Instance) -> int:
    """End being a host of another machine, which must have no workspaces here; remove all of it from this one.

    Idempotent: a call that died is repeated. Raise InstanceError.
    """
    if not (instance.state / JOINED).exists():
        raise InstanceError("This machine has joined no other one.")
    if manage(instance, "host_leave") != 0:
        return 1
    return clean(instance)


def host_token(instance: Instance, *arguments: str) -> int:
    """Open the instance to other machines, if it is not, at the address that is given or at the one that its packets
    leave with; print the line with which one of them joins. `arguments`: ADDRESS, NAME of a new host, name of a HOST
    that there is; each may be empty.
    """
    address, name, host = (*arguments, "", "", "")[:3]
    settings = instance.settings()
    if "control" not in settings.machine_roles:
        raise InstanceError("This machine has joined another one: make tokens there.")
    open_to_machines(instance, settings, address, output.print_message)
    options = [part for option, value in (("--name", name), ("--host", host)) if value for part in (option, value)]
    return manage(instance, "host_token", *options)


def print_status(instance: Instance) -> int:
    """Print one line for each process; exit code 3 if the instance does not run, 1 if a process is not running."""
    rows = control.process_states(instance)
    if not rows:
        output.print_block(f"instance {instance.id} ({instance.state}) is down")
        return 3
    output.print_block(f"instance {instance.id} ({instance.state}) at {instance.settings().base_url}")
    for row in rows:
        output.print_block(f"  {row.name:<8} {row.state:<9} {row.description}")
    return 0 if all(row.state == "RUNNING" for row in rows) else 1


def follow_logs(instance: Instance) -> int:
    """Return the last lines of every log, then new ones as they come, until Ctrl-C."""
    with _stoppable():
        try:
            with followed(_logs(instance, instance.settings()), output.print_line, tail_lines=20) as ended:
                ended.wait()
        except Stopped:
            return 0
    return 0


def print_environment(instance: Instance) -> int:
    """Print shell lines that export this instance's settings: `eval "$(make -s env)"`.

    Without what a process derives from them: the paths of this instance must not become those of another one.
    """
    for key, value in sorted(instance.settings().variables(derived=False).items()):
        output.print_block(f"export {key}={shlex.quote(value)}")
    return 0


def manage(instance: Instance, *arguments: str) -> int:
    """Run `manage.py` with this instance's settings, and with its database also while it is down. Return its exit
    code.
    """
    settings = instance.settings()
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    with ExitStack() as stack:
        if data_folder(instance).exists():
            try:
                stack.enter_context(running_server(instance, settings))
            except InstanceError as error:
                output.print_message(str(error))
        return subprocess.run(command, env=process_environment(instance, settings), check=False).returncode


def _foreground(instance: Instance, settings: Env, supervisor: subprocess.Popen[bytes]) -> int:
    shown = ShownLines()

    def show(process: str, line: str) -> None:
        if shown.is_shown(process, line):
            output.print_line(process, line)

    output.print_message("Starting; warnings are shown here, `make logs` has everything.")
    with followed(_logs(instance, settings), show):
        _demonstrate(instance, hint="Ctrl-C stops everything.", wait_seconds=2 * POLL_SECONDS)
        supervisor.wait()
        output.print_message(f"supervisord ended with {supervisor.returncode}; see {instance.run_dir}/supervisord.log")
        return 1


def _wait_until_serving(instance: Instance, base_url: str) -> None:
    if not wait_until_serving(base_url, READY_SECONDS):
        waiting = [row.name for row in control.process_states(instance) if row.state != "RUNNING"]
        names = ", ".join(waiting) or "the API"
        raise InstanceError(f"{names} did not come up in {READY_SECONDS:.0f} s; see {instance.log_dir}.")


def _demonstrate(instance: Instance, hint: str, wait_seconds: float = 0) -> bool:
    """Wait until the API serves, make the first workspace, run a command in it, and print the summary last. Without
    PLATFORM_DEMO the summary has the addresses alone.

    `wait_seconds`: before the summary, for lines of logs that are still to be shown. Return whether that workspace
    works, or is gone by its owner's will. Raise InstanceError if the API does not come up.
    """
    if "edge" not in instance.settings().machine_roles:
        return _show_host(instance, hint, wait_seconds)
    credentials = read_env_file(instance.credentials_file)
    _wait_until_serving(instance, credentials["BASE_URL"])
    if not instance.settings().demo or "host" not in instance.settings().machine_roles:
        time.sleep(wait_seconds)
        output.print_message(hint)
        show_addresses(credentials["BASE_URL"])
        return True
    workspace, works = None, False
    try:
        # If two commands start the instance at once, the second one finds what the first one made.
        with control.exclusive_control(instance, "first-workspace"):
            workspace = first_workspace(credentials, instance.state / "first-workspace")
        if workspace is None:
            output.print_message("The first workspace was made before and is gone; it is not made again.")
        else:
            run_command(credentials, workspace)
        works = True
    except DemoError as error:
        reason = str(error).rstrip(".")
        output.print_message(f"The first workspace does not work yet: {reason}. `make doctor` checks the host.")
    time.sleep(wait_seconds)
    output.print_message(hint)
    show_summary(credentials, workspace, instance.credentials_file)
    return works


def _show_host(instance: Instance, hint: str, wait_seconds: float) -> bool:
    """Wait until this machine's host takes machines, and say so. Return whether it does."""
    works = manage(instance, "host_ready", "--wait", str(int(READY_SECONDS))) == 0
    time.sleep(wait_seconds)
    output.print_message(hint)
    return works


def _stop(instance: Instance) -> bool:
    with control.exclusive_control(instance):
        return control.stop_instance(instance, output.print_message)


def _logs(instance: Instance, settings: Env) -> list[Path]:
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
