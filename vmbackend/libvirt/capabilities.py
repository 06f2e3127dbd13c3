"""Asking QEMU and libvirt what they can do. QEMU runs for a moment without a machine, and answers over QMP."""

from __future__ import annotations

import json
import logging
import subprocess
import xml.etree.ElementTree as ET
from functools import lru_cache
from pathlib import Path
from shutil import which
from typing import Any

import libvirt

from vmbackend.capabilities import HostCapabilities

log = logging.getLogger(__name__)

_PROGRAM = "qemu-system-x86_64"
_SECONDS = 10.0
_QUESTIONS: tuple[dict[str, Any], ...] = (
    {"execute": "qmp_capabilities"},
    {"execute": "query-version", "id": "version"},
    {"execute": "query-migrate-capabilities", "id": "migration"},
    {"execute": "qom-list-properties", "id": "memory", "arguments": {"typename": "memory-backend-file"}},
    {"execute": "quit"},
)
# Without `rom`, memory that is mapped from a file for reading cannot be written by its guest. Without the second one,
# a load reads all of it.
_MAPPED_PROPERTIES = {"readonly", "rom"}
_MAPPED_MIGRATION = "x-ignore-shared"


def ask_host(connection: Any, domain_type: str, domain_xml: str) -> HostCapabilities:
    """Return what the connected libvirt and its QEMU can do. `domain_xml`: the domain capabilities, which name QEMU."""
    program = ET.fromstring(domain_xml).findtext("path") or _PROGRAM  # noqa: S314  # libvirt's own
    accelerator = "kvm" if domain_type == "kvm" else "tcg"
    return _combine(find_qemu(program), connection.getLibVersion(), accelerator)


def ask_programs() -> HostCapabilities:
    """Return the same without a connection, for which the root of an embedded libvirt would be needed."""
    return _combine(find_qemu(_PROGRAM), libvirt.getVersion(), "")


def find_qemu(program: str) -> HostCapabilities:
    """Return what QEMU answers; nothing known if it does not. It is asked once, and again when it was upgraded."""
    path = Path(which(program) or program)
    try:
        status = path.stat()
        return _ask_qemu(path, (status.st_mtime_ns, status.st_size))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        log.warning("QEMU does not say what it can do: %s", error)
        return HostCapabilities()


@lru_cache(maxsize=4)
def _ask_qemu(path: Path, _file: tuple[int, int]) -> HostCapabilities:
    command = [str(path), "-S", "-nodefaults", "-no-user-config", "-display", "none", "-machine", "none"]
    asked = "".join(json.dumps(question) + "\n" for question in _QUESTIONS)
    done = subprocess.run(
        [*command, "-qmp", "stdio"], input=asked, capture_output=True, text=True, timeout=_SECONDS, check=True
    )
    return read_answers(done.stdout)


def read_answers(text: str) -> HostCapabilities:
    """Return what QEMU's answers say. Raises ValueError, KeyError, TypeError for others."""
    lines = [json.loads(line) for line in text.splitlines()]
    answers = {line["id"]: line.get("return") for line in lines if "id" in line}
    version = answers["version"]["qemu"]
    migration = {row["capability"] for row in answers["migration"]}
    properties = {row["name"] for row in answers["memory"]}
    return HostCapabilities(
        qemu=f"{version['major']}.{version['minor']}.{version['micro']}",
        mapped_ram="mapped-ram" in migration,
        mapped_templates=properties >= _MAPPED_PROPERTIES and _MAPPED_MIGRATION in migration,
    )


def _combine(qemu: HostCapabilities, libvirt_version: int, accelerator: str) -> HostCapabilities:
    # libvirt reports its formats nowhere: a library that has the parameter for the format of an image knows `sparse`.
    knows_sparse = hasattr(libvirt, "VIR_DOMAIN_SAVE_PARAM_IMAGE_FORMAT")
    return HostCapabilities(
        qemu=qemu.qemu,
        libvirt=f"{libvirt_version // 1000000}.{libvirt_version // 1000 % 1000}.{libvirt_version % 1000}",
        accelerator=accelerator,
        mapped_ram=qemu.mapped_ram,
        sparse_images=knows_sparse and qemu.mapped_ram,
        mapped_templates=qemu.mapped_templates,
    )
