"""Contents that a conversion keeps by other means, leaves out or changes: `layer_contents.py`, confined, and its
report.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmbackend.images.process import run_confined_tool
from vmbackend.images.types import Job
from vmbackend.tool_confinement import ToolConfinement

log = logging.getLogger(__name__)
PROGRAM = Path(__file__).with_name("layer_contents.py")
MAX_REPORT = 1 << 20  # bytes
MAX_CHANGES = 80
MAX_CHANGE = 600  # characters
_UNKNOWN = "what the base disk lacks of the layers is not known: they could not be read a second time"
# To enter the tree as its root, and to remove files of any owner there.
_CAPABILITIES = ("dac_override", "fowner", "sys_chroot")
_SYSTEM = Path("/usr")
_PYTHON = Path(sys.executable).resolve()
_PATH = re.compile(r"/[A-Za-z0-9_.,:+@=%~/-]+")


@dataclass(frozen=True, slots=True)
class Contents:
    """`devices`: definitions for mksquashfs, one a line. `changes`: sentences for the image's users."""

    devices: str = ""
    changes: tuple[str, ...] = ()


def examine_contents(scratch: Path, job: Job) -> Contents:
    """Examine the layers in `oci`, and prepare the tree in `rootfs` for devices. Raise what `run_confined_tool`
    raises.
    """
    job.report_progress(78, "Comparing the tree with its layers.")
    confinement = ToolConfinement(
        readable=((scratch / "oci", "/oci"), (PROGRAM, "/program.py")),
        readable_if_present=() if _PYTHON.is_relative_to(_SYSTEM) else (Path(sys.base_prefix).resolve(),),
        writable=((scratch / "rootfs", "/rootfs"),),
        capabilities=_CAPABILITIES,
    )
    argv = [str(_PYTHON), "-S", "-s", "-P", "/program.py", "/oci", "/rootfs"]
    done = run_confined_tool(argv, confinement, job=job, max_stdout=MAX_REPORT)
    if done.returncode != 0 or done.truncated:
        log.warning("an image's layers could not be examined: %s", done.stderr[-2000:].strip())
        return Contents(changes=(_UNKNOWN,))
    return _contents(done.stdout)


def _contents(report: bytes) -> Contents:
    """Return the checked contents. The report is of a program that read what anybody wrote: a line for mksquashfs must
    be nothing but a device.
    """
    try:
        found = json.loads(report)
        devices = "".join(map(_definition, found["devices"]))
        changes = tuple(_sentence(change) for change in found["changes"][:MAX_CHANGES])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        log.warning("the report on an image's layers is damaged: %s", error)
        return Contents(changes=(_UNKNOWN,))
    return Contents(devices, changes)


def _definition(device: list[Any]) -> str:
    path, kind, *numbers = device
    if not _PATH.fullmatch(path) or kind not in ("b", "c") or len(numbers) != 5:
        raise ValueError("not a device")
    mode, uid, gid, major, minor = map(int, numbers)
    return f"{path} {kind} {mode & 0o7777:o} {uid} {gid} {major} {minor}\n"


def _sentence(change: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in change[:MAX_CHANGE])
