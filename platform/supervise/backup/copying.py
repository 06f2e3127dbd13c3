"""Copies of folders: by rsync, which goes on where it was interrupted, and by cp for the sparse files of machines."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from supervise.instance import InstanceError

# Files that vanish while they are copied belong to a platform that runs.
_RSYNC_OK = (0, 24)
# Times are compared to the nanosecond: a file may change twice in a second, and keep its size.
_RSYNC = ("rsync", "--archive", "--hard-links", "--sparse", "--numeric-ids", "--modify-window=-1")
_FULL = "No space left on device"


def copy_folder(
    source: Path,
    target: Path,
    *,
    exclude: Sequence[str] = (),
    former: Path | None = None,
    delete: bool = False,
    keep: bool = False,
) -> None:
    """Copy what `source` has and `target` has not, or otherwise; nothing happens if there is no `source`.

    `exclude`: patterns as rsync has them. `former`: a copy from before; what has not changed since shares its bytes.
    `delete`: what only `target` has. `keep`: files that are there stay as they are. Raise InstanceError; a second
    call goes on.
    """
    if not source.is_dir():
        return
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = [*_RSYNC, *(f"--exclude={pattern}" for pattern in exclude)]
    if delete:
        command.append("--delete-excluded")
    if keep:
        command.append("--ignore-existing")
    if former is not None and former.is_dir():
        command.append(f"--link-dest={former.resolve()}")
    run_program([*command, f"{source}/", f"{target}/"], ok=_RSYNC_OK)


def copy_sparse_folder(source: Path, target: Path) -> None:
    """Copy one folder of large sparse files, completely or not at all. Raise InstanceError."""
    beside = target.with_name(f".{target.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    run_program(
        ["cp", "--archive", "--sparse=auto", "--reflink=auto", "--no-target-directory", str(source), str(beside)]
    )
    shutil.rmtree(target, ignore_errors=True)
    beside.replace(target)


def run_program(command: Sequence[str], *, ok: Sequence[int] = (0,), env: dict[str, str] | None = None) -> None:
    """Raise InstanceError with the end of what the program printed, or that the disk is full."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=env, check=False)
    except FileNotFoundError as error:
        raise InstanceError(f"{command[0]} is not installed; `make backup` and `make restore` install it.") from error
    if done.returncode in ok:
        return
    if _FULL in done.stderr:
        raise InstanceError(
            "The disk that is copied to is full. Make room and repeat the command: it goes on from there."
        )
    lines = (done.stderr or done.stdout).strip().splitlines()[-3:]
    raise InstanceError(f"{command[0]} failed ({done.returncode}): {' '.join(lines)}")
