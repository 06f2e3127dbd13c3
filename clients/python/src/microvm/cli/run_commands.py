"""Programs in a workspace: exec, ssh, terminal, logs."""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from contextlib import closing
from typing import Annotated, Any, cast

import typer

from microvm.cli.arguments import Environment, FirstWorkspace, OptionalWorkspace, bounded_number, environment
from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.output import Output
from microvm.cli.piping import parts_of_stdin
from microvm.cli.printable import printable
from microvm.cli.session import Session, command
from microvm.cli.ssh import SshOptions, run_ssh
from microvm.cli.task_commands import start_background
from microvm.cli.terminal import Keyboard, open_sandbox_terminal
from microvm.cli.usage import PASSED_ON, ProgramCommand
from microvm.cli.workload_commands import start_detached
from microvm.commands import CommandExit, CommandOutput, ExactResult
from microvm.errors import ConnectionFailed
from microvm.types.logs import LogEntry

MOST_STDIN = 6 << 20  # bytes, with --json; a request has 10 MiB at most, of which base64 takes a third
TOKEN = "MICROVM_SANDBOX_TOKEN"  # noqa: S105
LONGEST = 600.0  # seconds, of the service
Program = Annotated[
    list[str] | None, typer.Argument(metavar="COMMAND", help="What follows the workspace is the command's own.")
]
ProgramSeconds = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        parser=bounded_number(1, LONGEST),
        help="When it is killed; 600 at most.",
    ),
]
Jump = Annotated[
    str | None,
    typer.Option("--jump", "-J", metavar="USER@HOST", help="A host from which the workspace's network is reached."),
]
Identity = Annotated[
    str | None, typer.Option("--identity", "-i", metavar="FILE", help="A private key; its public one lies beside it.")
]


def add_run_commands(app: typer.Typer) -> None:
    not_started = ExitCode.NOT_STARTED
    program: dict[str, Any] = {"fails_with": not_started, "cls": ProgramCommand, "context_settings": PASSED_ON}
    command(app, "exec", **program)(execute_program)
    command(app, "ssh", **program)(open_ssh)
    command(app, "terminal", fails_with=not_started)(open_terminal)
    command(app, "logs")(show_logs)


def execute_program(
    session: Session,
    *,
    workspace: FirstWorkspace,
    program: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="A program and its arguments, without a shell.")
    ],
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Pass standard input on to it, as it comes.")] = False,
    env: Environment = None,
    cwd: Annotated[str | None, typer.Option("--cwd", "-C", help="Where it runs.")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="As whom it runs.")] = None,
    timeout: ProgramSeconds = 60,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Start it as a workload, which goes on without `ws`; print its name.")
    ] = False,
    background: Annotated[
        bool,
        typer.Option("--background", "-b", help="Start it as a task, which goes on without `ws`; print its number."),
    ] = False,
) -> int:
    """Run a program in a workspace to its end, and exit with its code.

    Its output comes while it runs; Ctrl-C ends the program, too. With --json the whole result comes at its end, with
    1 MiB of each stream at most, and Ctrl-C ends only the wait.
    """
    words = program[1:] if program[0] == "--" else program
    if detach and background:
        hint = "--detach starts a workload, which lasts; --background a task, which ends by itself."
        raise CommandError("A workload is no task.", hint, ExitCode.USAGE)
    if (detach or background) and stdin:
        hint = "Copy the input with `ws cp`, and name the file."
        raise CommandError("A program that goes on without `ws` has no input of it.", hint, ExitCode.USAGE)
    body: dict[str, Any] = {"cmd": words, "timeout_seconds": timeout}
    body |= {"env": environment(env)} if env else {}
    body |= {"working_dir": cwd} if cwd else {}
    body |= {"user": user} if user else {}
    found = session.workspace(workspace)
    if detach or background:
        (start_detached if detach else start_background)(session, found, body)
        return 0
    if session.output.as_json:
        return _show_result(session, found, body, _bytes_of_stdin() if stdin else b"")
    return _show_output(session, found, body, has_input=stdin)


def _show_result(session: Session, workspace: str, body: dict[str, Any], stdin: bytes) -> int:
    """The result as JSON. Returns its exit code."""
    try:
        result = session.client.workspaces.exec_bytes(workspace, stdin_bytes=stdin, **cast(Any, body))
    except KeyboardInterrupt:
        session.output.warn(f"The program goes on in the workspace, for {body['timeout_seconds']:g} seconds at most.")
        raise
    session.output.show_json(_json_of(result))
    return result.exit_code


def _json_of(result: ExactResult) -> dict[str, Any]:
    """As the API answers; where the text of an output is not exact, with both byte for byte beside it."""
    texts = {"stdout": result.stdout.decode(errors="replace"), "stderr": result.stderr.decode(errors="replace")}
    exact: dict[str, Any] = {"lossy": False}
    if (texts["stdout"].encode(), texts["stderr"].encode()) != (result.stdout, result.stderr):
        exact = {"lossy": True}
        exact |= {f"{name}_base64": b64encode(getattr(result, name)).decode() for name in texts}
    ended = {name: getattr(result, name) for name in ("duration_ms", "truncated", "timed_out")}
    return {"success": True, "exit_code": result.exit_code, **texts, **exact, **ended}


def _show_output(session: Session, workspace: str, body: dict[str, Any], *, has_input: bool) -> int:
    """The output as it comes. Returns the program's exit code; where this ends early, the service ends the program."""
    is_begun, parts = False, parts_of_stdin() if has_input else None
    try:
        stream = session.client.workspaces.exec_stream(workspace, stdin_parts=parts, **cast(Any, body))
        with closing(stream) as events:
            for event in events:
                if isinstance(event, CommandExit):
                    return _exit_code(session, event, body["timeout_seconds"])
                _write(event)
                is_begun = True
    except KeyboardInterrupt:
        session.output.warn("The program is ended in the workspace.")
        raise
    except ConnectionFailed as error:
        if not is_begun:
            raise
        hint = "The program is ended in the workspace; a workload outlives connections."
        raise CommandError(str(error), hint) from None
    hint = "The program is ended in the workspace. `ws profiles` shows the address: is the platform there?"
    raise CommandError("The stream ended without an exit code.", hint)


def _write(output: CommandOutput) -> None:
    """Byte for byte, at once."""
    sink = sys.stdout if output.stream == "stdout" else sys.stderr
    sink.buffer.write(output.data)
    sink.flush()


def _exit_code(session: Session, end: CommandExit, timeout: float) -> int:
    if end.timed_out:
        session.output.warn(f"The program was killed after {timeout:g} seconds.")
    return end.exit_code


def open_ssh(
    session: Session,
    *,
    workspace: Annotated[str | None, typer.Argument(metavar="WORKSPACE", help="`.` is the last created one.")] = None,
    program: Program = None,
    jump: Jump = None,
    identity: Identity = None,
    forward: Annotated[
        list[str] | None,
        typer.Option("--forward", "-L", metavar="PORT:HOST:PORT", help="As of ssh; repeat it for more."),
    ] = None,
) -> int:
    """Open a shell, or run a program, by this system's ssh. Enables SSH in the workspace and authorizes a key first.

    As with ssh, the words of the program are joined and read by the shell there. The workspace's own address must be
    reachable: from its host, or by --jump.
    """
    options = SshOptions(jump=jump, identity=identity, forwards=tuple(forward or ()))
    words = program[1:] if program and program[0] == "--" else program
    return run_ssh(session, session.workspace(workspace), options, words or [])


def open_terminal(
    session: Session,
    *,
    workspace: OptionalWorkspace = None,
    attach: Annotated[int | None, typer.Option("--attach", help="Of a sandbox: the terminal with this number.")] = None,
    program: Annotated[
        str | None, typer.Option("--command", help="Of a sandbox: a command instead of the shell.")
    ] = None,
    jump: Jump = None,
    identity: Identity = None,
) -> int:
    """Open a terminal. Enter ~ . leaves it.

    That of a sandbox goes by WebSocket: it comes back after a lost connection, and outlives `ws` by ten minutes.
    MICROVM_SANDBOX_TOKEN is the token of one that was made elsewhere. That of another workspace goes by SSH, as
    `ws ssh` does.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        hint = "`ws exec` runs a program without one."
        raise CommandError("A terminal needs a terminal here.", hint, ExitCode.USAGE)
    reference = session.reference(workspace)
    saved = session.recent.sandbox(reference)
    if saved is None and not reference.startswith("sbx_"):
        if attach is not None or program is not None:
            hint = "`ws ssh WORKSPACE COMMAND` runs a program."
            raise CommandError("--attach and --command are for sandboxes.", hint, ExitCode.USAGE)
        return run_ssh(session, reference, SshOptions(jump=jump, identity=identity), [])
    token = os.environ.get(TOKEN)
    url = saved.url if saved and not token else session.client.sandboxes.get(saved.id if saved else reference)["url"]
    known = token or (saved.token if saved else None)
    if not known:
        hint = f"Set {TOKEN}; only the answer of its creation has it."
        raise CommandError("The token of this sandbox is not known here.", hint, ExitCode.UNAUTHORIZED)
    return open_sandbox_terminal(url, known, Keyboard(0, 1), attach=attach, program=program, say=session.output.warn)


def show_logs(
    session: Session,
    *,
    workspace: OptionalWorkspace = None,
    source: Annotated[str, typer.Option("--source", "-s", help="boot, cmd, or the name of a workload.")] = "boot",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with each new line.")] = False,
    tail: Annotated[int, typer.Option("--tail", "-n", help="The last lines.")] = 100,
    times: Annotated[bool, typer.Option("--times", "-t", help="With the time of each line.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Control characters as they are, also on a terminal.")] = False,
) -> None:
    """Show a log. With --json one object a line.

    On a terminal control characters are shown as escapes: programs in a workspace may have written them to deceive.
    """
    found = session.workspace(workspace)
    printer = LogPrinter(session.output, times=times, escaped=not raw and session.output.out.is_terminal)
    if not follow:
        for entry in session.client.logs.list(found, source=source, tail_lines=tail):
            printer.show_entry(entry)
        return
    session.client.workspaces.get(found)  # what is not there, or not reachable, is said at once
    for entry in session.patient_client.logs.follow(
        found,
        source,
        tail_lines=tail,
        on_gap=lambda: session.output.warn("Lines are missing here."),
        on_clear=lambda: session.output.say("The log was emptied."),
    ):
        printer.show_entry(entry)


class LogPrinter:
    """Writes entries of logs to stdout, each at once."""

    def __init__(self, output: Output, *, times: bool, escaped: bool) -> None:
        self._output, self._times, self._escaped = output, times, escaped

    def show_entry(self, entry: LogEntry) -> None:
        if self._output.as_json:
            self._output.show_json_line(entry)
            return
        line = printable(entry["line"]) if self._escaped else entry["line"]
        prefix = f"{printable(entry['timestamp'] or '-')} " if self._times else ""
        sys.stdout.write(f"{prefix}{line}\n")
        sys.stdout.flush()


def _bytes_of_stdin() -> bytes:
    """Raises CommandError for too much of it."""
    data = sys.stdin.buffer.read(MOST_STDIN + 1)
    if len(data) > MOST_STDIN:
        hint = "Without --json it may be any number of bytes."
        raise CommandError(f"Standard input has more than {MOST_STDIN >> 20} MiB.", hint, ExitCode.USAGE)
    return data
