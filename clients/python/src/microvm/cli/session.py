"""One call of `ws`: its connection, its output, and what every command has in common."""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any, get_type_hints

import typer

from microvm.cli.completion import given_before, profile_names
from microvm.cli.connection import Connection, find_connection
from microvm.cli.failures import CommandError, ExitCode, failure_of
from microvm.cli.output import Output, close_stdout, drop_unwritable_output
from microvm.cli.patience import Patience
from microvm.cli.recent import RecentStore, SavedSandbox
from microvm.sync.client import Microvm
from microvm.types.sandboxes import NewSandbox

LAST = "."
Json = Annotated[bool, typer.Option("--json", help="Print JSON, also of errors (on stderr).")]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="The profile to use instead of the active one.",
        autocompletion=profile_names,
    ),
]
Command = Callable[..., int | None]


class Session:
    """Given to each command. `client` is opened where it is first used."""

    def __init__(self, profile: str | None = None, *, as_json: bool = False) -> None:
        self.output = Output(as_json=as_json)
        self.named_profile = profile

    @cached_property
    def connection(self) -> Connection:
        return find_connection(self.named_profile)

    @cached_property
    def client(self) -> Microvm:
        return Microvm(self.connection.profile.base_url, **self.connection.client_options())

    @cached_property
    def patient_client(self) -> Microvm:
        """For what goes on for long, once `client` was answered: it also goes on after a restart of the service."""
        options = self.connection.client_options()
        return Microvm(self.connection.profile.base_url, **options, retries=Patience(say=self.output.show_note))

    @cached_property
    def recent(self) -> RecentStore:
        return RecentStore(self.connection.account)

    def reference(self, given: str | None) -> str:
        """The workspace that is meant: the given one, MICROVM_WORKSPACE, or the one that was created last."""
        found = given if given not in (None, "", LAST) else os.environ.get("MICROVM_WORKSPACE") or self.recent.last()
        if not found:
            hint = "`ws create --wait` makes one, `ws list` shows those that exist."
            raise CommandError("Name a workspace: none was created here before.", hint, ExitCode.USAGE)
        return found

    def sandbox(self, given: str | None) -> str | None:
        """Return the id of the sandbox that is meant; None if a workspace is."""
        found = self.reference(given)
        saved = self.recent.sandbox(found)
        found = saved.id if saved else found
        return found if found.startswith("sbx_") else None

    def workspace(self, given: str | None) -> str:
        """The same as a path of the API takes it: of a sandbox its machine."""
        sandbox = self.sandbox(given)
        return str(self.client.sandboxes.get(sandbox)["workspace_id"]) if sandbox else self.reference(given)

    def remember(self, change: Callable[[RecentStore], None]) -> None:
        """Change what `ws` remembers. Where that fails, what was done is not undone: it is said, and nothing more."""
        try:
            change(self.recent)
        except (OSError, CommandError) as error:
            self.output.warn(f"It was done, but `ws` cannot remember it: {failure_of(error).message}")

    def remember_token(self, made: NewSandbox) -> None:
        """Keep the token of a new sandbox, which no later answer has."""
        if made["token"]:
            saved = SavedSandbox(made["id"], made["name"], made["url"], made["token"])
            self.remember(lambda recent: recent.remember_sandbox(saved))

    def close(self) -> None:
        for name in ("client", "patient_client"):
            if name in self.__dict__:
                self.__dict__[name].close()


def command(
    app: typer.Typer, name: str, *, fails_with: ExitCode | None = None, **options: Any
) -> Callable[[Command], Command]:
    """Make a command of a function, which gets a Session first and returns an exit code or None.

    Adds `--json` and `--profile`, which may also stand before the command. Errors become a sentence and an exit code:
    `fails_with` (of a program that cannot be started 126 or 127), else by their kind.
    """

    def decorate(function: Command) -> Command:
        parameters = _parameters_of(function)[1:] + _parameters_of(_common)

        def run(*, context: typer.Context, json: bool, profile: str | None, **given: Any) -> None:
            session = Session(
                profile or given_before(context, "profile"), as_json=json or given_before(context, "json")
            )
            raise typer.Exit(_exit_code(session, lambda: function(session, **given), fails_with))

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.__doc__ = function.__doc__
        app.command(name, **options)(run)
        return function

    return decorate


def command_group(name: str, text: str, parent: typer.Typer) -> typer.Typer:
    """A group of commands below another one; `text` is its help."""
    made = typer.Typer(help=text, no_args_is_help=True)
    made.callback()(_group_options)
    parent.add_typer(made, name=name)
    return made


def _group_options(*, json: Json = False, profile: ProfileOption = None) -> None:
    """Read by the command from its context."""


def _common(*, context: typer.Context, json: Json = False, profile: ProfileOption = None) -> None:
    """Parameters of every command."""


def _parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Its parameters with their types, named ones all."""
    hints = get_type_hints(function, include_extras=True)
    found = inspect.signature(function).parameters.values()
    named = inspect.Parameter.KEYWORD_ONLY
    return [each.replace(annotation=hints.get(each.name, Any), kind=named) for each in found]


def _exit_code(session: Session, run: Callable[[], int | None], fails_with: ExitCode | None) -> int:
    try:
        try:
            return run() or 0
        finally:
            session.close()
    except (KeyboardInterrupt, typer.Abort):
        session.output.err.print()
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        close_stdout()
        return ExitCode.BROKEN_PIPE
    except typer.Exit as done:
        return done.exit_code
    except Exception as error:
        if os.environ.get("MICROVM_DEBUG"):
            traceback.print_exc()
        failure = failure_of(error)
        session.output.show_failure(failure)
        drop_unwritable_output()
        return (failure.program_code or fails_with) if fails_with else failure.exit_code
