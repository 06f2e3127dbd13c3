"""Wrong use of a command, said as other errors are: a sentence, a hint, an exit code, JSON where it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from microvm.cli.failures import ExitCode, ShownFailure, failure_of
from microvm.cli.output import Output, drop_unwritable_output
from microvm.cli.printable import printable

# Their exit codes are those of a program in a workspace, which may well be 2.
PASS_CODES_ON = ("exec", "ssh", "terminal")
PASSED_ON = {"allow_interspersed_args": False}


class CommandGroup(TyperGroup):
    """All commands, as a program: calling it exits with a command's code."""

    def main(self, args: Sequence[str] | None = None, *positional: Any, **options: Any) -> NoReturn:
        words = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(words, *positional, **{**options, "standalone_mode": False})
        except TyperException as error:
            code = _shown(error, as_json="--json" in words)
        except typer.Abort:
            code = ExitCode.INTERRUPTED
        except OSError as error:  # of the help, where stdout takes none
            Output(as_json="--json" in words).show_failure(failure_of(error))
            drop_unwritable_output()
            code = ExitCode.FAILED
        sys.exit(code or 0)


class ProgramCommand(TyperCommand):
    """A command that ends with a program of the workspace: what follows the workspace is the program's own.

    Options that stand between the workspace and `--` are the command's.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if self._has_options_before_the_program(ctx, args):
            ctx.allow_interspersed_args = True
        return super().parse_args(ctx, args)

    def _has_options_before_the_program(self, ctx: Any, args: Sequence[str]) -> bool:
        """Whether what names no program, and options, stand alone before `--`."""
        if "--" not in args:
            return False
        parser = self.make_parser(ctx)
        parser.allow_interspersed_args = True
        try:
            found, _, _ = parser.parse_args(list(args[: args.index("--")]))
        except TyperException:
            return False
        arguments = [each for each in self.params if each.param_type_name == "argument"]
        return all(bool(found.get(str(each.name))) == (each.nargs == 1) for each in arguments)


def _shown(error: TyperException, *, as_json: bool) -> int:
    """Shows an error of the arguments; returns the exit code."""
    context: typer.Context | None = getattr(error, "ctx", None)
    message = error.format_message()
    if message.startswith("Usage:") and not as_json:  # nothing was given: this is the help
        sys.stderr.write(f"{message}\n")
        return ExitCode.USAGE
    path = context.command_path if context is not None else "ws"
    if message.startswith("Usage:"):
        message = "A command is missing."
    hint = f"`{path} --help` shows how it is used."
    Output(as_json=as_json).show_failure(ShownFailure(printable(message), hint, ExitCode.USAGE))
    passes_on = context is not None and context.command.name in PASS_CODES_ON
    return ExitCode.NOT_STARTED if passes_on else ExitCode.USAGE
