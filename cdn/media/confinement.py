"""Confinement of the process that inspects files, as strict as this host allows.

It is confined like the host's tools that read files of users: a user of its own, no network, and no files but its
libraries (`vmbackend.tool_confinement`). That takes root and bubblewrap. Without them the process has no network. If a
namespace cannot be made either, the limits that the process sets itself remain: it can open no descriptor.
"""

from __future__ import annotations

import enum
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from cdn.inspection.limits import MEMORY_BYTES
from vmbackend.errors import BackendUnavailable
from vmbackend.tool_confinement import PROGRAMS, ToolConfinement, confined_command

ROOT = Path(__file__).resolve().parents[2]
_PYTHON = Path(sys.executable).resolve()
_SYSTEM = Path("/usr")
_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "PATH": "/usr/bin:/bin",
    "VIPS_BLOCK_UNTRUSTED": "1",
    "VIPS_CONCURRENCY": "2",
    # Each arena takes 64 MiB of address space, which is limited.
    "MALLOC_ARENA_MAX": "1",
}


class Level(enum.Enum):
    """Levels of confinement. The value is the doctor command's text."""

    OWN_USER = "as a user of its own, without network and files"
    NO_NETWORK = "without network, as the user of the platform"
    LIMITS = "by its own limits only: it can open no file and no socket once it reads"


@dataclass(frozen=True, slots=True)
class Confined:
    """Command, the descriptors that it must inherit, and its environment."""

    command: tuple[str, ...]
    descriptors: tuple[int, ...]
    environment: Mapping[str, str]


@contextmanager
def inspection_confined(level: Level, order: str) -> Iterator[Confined]:
    """Yield the command that inspects its standard input; valid within the block. Raise BackendUnavailable."""
    if level is Level.OWN_USER:
        with confined_command(_argv(order), _confinement()) as (command, descriptors):
            yield Confined(tuple(command), tuple(descriptors), _environment("/", "/packages"))
    else:
        packages = str(_packages_folder())
        yield Confined((*_wrapper(level), *_argv(order)), (), _environment(str(ROOT), packages))


def levels() -> Iterator[Level]:
    """Yield the levels that the host may have, the strictest first."""
    if os.geteuid() == 0 and all(shutil.which(program) for program in PROGRAMS):
        yield Level.OWN_USER
    if shutil.which("unshare") and shutil.which("setpriv"):
        yield Level.NO_NETWORK
    yield Level.LIMITS


def _argv(order: str) -> list[str]:
    # Without `site`, which takes 10 ms and reads files of the user.
    return [str(_PYTHON), "-S", "-s", "-P", "-m", "cdn.inspection", order]


def _environment(*folders: str) -> dict[str, str]:
    return {**_ENVIRONMENT, "PYTHONPATH": ":".join(folders)}


def _packages_folder() -> Path:
    spec = find_spec("pyvips")
    if spec is None or spec.origin is None:
        raise BackendUnavailable("The package pyvips is not installed.")
    return Path(spec.origin).resolve().parents[1]


def _confinement() -> ToolConfinement:
    python = () if _PYTHON.is_relative_to(_SYSTEM) else (Path(sys.base_prefix).resolve(),)
    return ToolConfinement(
        readable=((_packages_folder(), "/packages"), (ROOT / "cdn", "/cdn")),
        readable_if_present=python,
        memory_bytes=MEMORY_BYTES,
    )


def _wrapper(level: Level) -> tuple[str, ...]:
    """Return the prefix of the command, by which it ends with the thread that started it."""
    end = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
    if level is Level.LIMITS:
        return end
    user = () if os.geteuid() == 0 else ("--user",)
    return (*end, "unshare", "--net", *user, "--")
