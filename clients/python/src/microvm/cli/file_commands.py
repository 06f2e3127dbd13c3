"""Copies of files and folders."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated

import typer
from rich.progress import Progress as ProgressBars

from microvm.cli.copying import Copied, Copier, Place, parse_place
from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.printable import printable, size_text
from microvm.cli.session import Session, command
from microvm.transfers import Progress, current_umask

MOST_SHOWN = 20


def add_file_commands(app: typer.Typer) -> None:
    command(app, "cp")(copy_files)


def copy_files(
    session: Session,
    *,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A path here, WORKSPACE:/path, or - for standard input.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A path here, WORKSPACE:/path, or - for standard output.")
    ],
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Folders, too.")] = False,
) -> int:
    """Copy files to or from a running workspace.

    Modes and symbolic links are copied; special files, and links that lead out of a folder from a workspace, are left
    out and named.
    """
    first, second = parse_place(source), parse_place(target)
    if not source or not target:
        raise CommandError("A path is empty.", "`.` is this folder, `-` a standard stream.", ExitCode.USAGE)
    if (first.workspace is None) == (second.workspace is None):
        hint = "As in: ws cp ./a hello:/srv/a"
        raise CommandError("One of the two must be in a workspace.", hint, ExitCode.USAGE)
    if first.is_stream or second.is_stream:
        done = _copy_stream(session, first, second)
    else:
        done = _copy_paths(session, first, second, recursive)
    _report(session, done, quiet=second.is_stream)
    return ExitCode.FAILED if done.skipped else 0


def _copy_stream(session: Session, source: Place, target: Place) -> Copied:
    if source.workspace is None:
        if target.path.endswith("/"):
            hint = f"Name the file, as {target.workspace}:{target.path}name."
            raise CommandError("Standard input has no name for a copy in a folder.", hint, ExitCode.USAGE)
        workspace = session.workspace(target.workspace)
        with NamedTemporaryFile(prefix="ws-") as spool:  # its size is needed first, and memory has no room for all
            shutil.copyfileobj(sys.stdin.buffer, spool)
            spool.flush()
            mode = 0o666 & ~current_umask()  # of a file that a shell makes
            written = session.client.files.upload(workspace, target.path, spool.name, mode=mode)
            return Copied(1, written["size"])
    size = session.client.files.download_to(session.workspace(source.workspace), source.path, sys.stdout.buffer)
    sys.stdout.buffer.flush()
    return Copied(1, size)


def _copy_paths(session: Session, source: Place, target: Place, recursive: bool) -> Copied:
    workspace = session.workspace(source.workspace or target.workspace)
    with session.output.transfer_progress() as bars:
        client, note = session.patient_client, session.output.show_note
        copier = Copier(client, workspace, lambda name, size: _bar(bars, name, size), session.client, note)
        if source.workspace is None:
            copier.upload(Path(source.path), target.path, recursive=recursive)
        else:
            copier.download(source.path, Path(target.path), recursive=recursive)
    return copier.done


def _bar(bars: ProgressBars, name: str, size: int | None) -> Progress:
    """One bar at a time: the last file's is replaced."""
    for task in bars.task_ids:
        bars.remove_task(task)
    task = bars.add_task(printable(name), total=size)
    return lambda done, total: bars.update(task, completed=done, total=total)


def _report(session: Session, done: Copied, *, quiet: bool) -> None:
    for path, reason in done.skipped[:MOST_SHOWN]:
        session.output.warn(f"{path} was left out: {reason}.")
    if len(done.skipped) > MOST_SHOWN:
        session.output.warn(f"{len(done.skipped) - MOST_SHOWN} more were left out.")
    if quiet:
        return
    skipped = [{"path": path, "reason": reason} for path, reason in done.skipped]
    count = "1 file" if done.files == 1 else f"{done.files} files"
    result = {"files": done.files, "bytes": done.size, "skipped": skipped}
    session.output.show_result(result, f"Copied {count}, {size_text(done.size)}.")
