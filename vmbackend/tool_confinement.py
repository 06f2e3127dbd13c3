"""Confinement of the host's tools that read what users or guests wrote: image layers, registries' answers, disks.

Such a tool runs

* as a user of its own, in a user namespace whose ids are 2^31 to 2^32 - 2 of the host, where no account and no machine
  is: root inside is nothing outside. So owners of files in an image are kept (id N is 2^31 + N on the host's disk)
  without the right to change those of the host;
* without capabilities, or with a few that hold for files of these ids only;
* with namespaces of its own for mounts, processes, IPC, host name and network: it sees /usr, a few public files of /etc
  where named, and its own folders; the network is empty unless the caller gives one;
* with limited memory, no core dumps, and killed with its parent.

`bwrap` (bubblewrap) sets up mounts as the host's root, as only root reaches the folders; then `nsenter` changes to the
user namespace and `setpriv` drops capabilities, before the tool is executed.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from vmbackend.errors import BackendUnavailable
from vmbackend.orphaned_tools import CONFINED

# The host's id of root inside. Above every range that systemd, Debian or this platform gives out.
TOOL_UID = 1 << 31
_ID_COUNT = (1 << 31) - 1
# By kind of user namespace: its ids, those of the host, and how many. All ids for readers, as a capability of a
# namespace holds for files of its ids alone; outside of it, and over what they do not see, it gives nothing.
_ID_MAPS = {"user": f"0 {TOOL_UID} {_ID_COUNT}\n", "reader": f"0 0 {(1 << 32) - 1}\n"}
_TMP_BYTES = 64 << 20
_FILES = 4096
_PROCESSES = 2048  # and threads, of all confined tools together
MEMORY_BYTES = 2 << 30
PROGRAMS = ("bwrap", "nsenter", "setpriv", "prlimit", "unshare")
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class ToolConfinement:
    """The reach of a tool. Paths are those of the host, each with its path inside."""

    readable: tuple[tuple[Path, str], ...] = ()
    readable_if_present: tuple[Path, ...] = ()  # at the same path inside
    writable: tuple[tuple[Path, str], ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)  # path inside -> content, on no disk
    capabilities: tuple[str, ...] = ()  # over files of the ids inside; as setpriv spells them
    memory_bytes: int = MEMORY_BYTES  # of the process's private memory (RLIMIT_DATA)
    network: int | None = None  # descriptor of a network namespace; None: an empty one
    reads_all_owners: bool = False  # reads files of whichever owner, among those that it sees


@contextmanager
def confined_command(
    argv: Sequence[str | Path], confinement: ToolConfinement, *, max_file_bytes: int | None = None
) -> Iterator[tuple[list[str], list[int]]]:
    """Yield the command that runs `argv` confined, and the descriptors that it must inherit; valid within the block.

    The process that it starts ends with its parent's thread, and everything inside with that process. Raises
    BackendUnavailable if the host cannot confine.
    """
    with ExitStack() as stack:
        namespace = _namespace("reader" if confinement.reads_all_owners else "user")
        network = confinement.network if confinement.network is not None else _namespace("net")
        contents = {path: stack.enter_context(_memory_file(data)) for path, data in confinement.files.items()}
        limits = [
            f"--data={confinement.memory_bytes}",
            "--core=0",
            f"--nofile={_FILES}",
            f"--nproc={_PROCESSES}",
        ]
        limits += [f"--fsize={max_file_bytes}"] if max_file_bytes else []
        command = [
            *("setpriv", "--pdeathsig", "KILL", "--", "prlimit", *limits, "--"),
            *("nsenter", f"--net=/proc/self/fd/{network}", "--"),
            *(*CONFINED, *_mounts(confinement, contents), "--"),
            *("nsenter", f"--user=/proc/self/fd/{namespace}", "--"),
            *("setpriv", *_rights(confinement), "--"),
            *map(str, argv),
        ]
        yield command, [namespace, network, *contents.values()]


def _rights(confinement: ToolConfinement) -> list[str]:
    """Return setpriv's options. A reader is the same user in a namespace that has all ids, with one capability."""
    if confinement.reads_all_owners:
        ids = [f"--reuid={TOOL_UID}", f"--regid={TOOL_UID}", "--clear-groups"]
        return [*ids, *(f"--{kind}=-all,+dac_read_search" for kind in ("bounding-set", "inh-caps", "ambient-caps"))]
    bounds = ",".join(["-all", *(f"+{name}" for name in confinement.capabilities)])
    return [f"--bounding-set={bounds}", "--inh-caps=-all"]


def confined_service(argv: Sequence[str], folder: Path, capabilities: Sequence[str], *, memory_bytes: int) -> list[str]:
    """Return the command that starts a daemon of the host's network, which outlives this process and drops root by
    itself.

    It sees /usr, the names of users, and `folder` at its own path. It starts as root with these capabilities only.
    """
    bounds = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    names = [word for name in ("/etc/passwd", "/etc/group") for word in ("--ro-bind", name, name)]
    return [
        *("prlimit", f"--data={memory_bytes}", f"--nofile={_FILES}", "--core=0", "--"),
        *("bwrap", "--new-session", "--unshare-ipc", "--unshare-uts", *_system_mounts()),
        *("--dir", "/etc", *names, "--bind", str(folder), str(folder), "--"),
        *("setpriv", f"--bounding-set={bounds}", "--inh-caps=-all", "--"),
        *argv,
    ]


def give_to_tools(path: Path) -> None:
    """Make the user of confined tools the owner of a file or folder of the platform; never follows a link."""
    os.chown(path, TOOL_UID, TOOL_UID, follow_symlinks=False)


def _mounts(confinement: ToolConfinement, contents: Mapping[str, int]) -> list[str]:
    mounts = [*_system_mounts(), "--proc", "/proc"]
    mounts += ["--perms", "1777", "--size", str(_TMP_BYTES), "--tmpfs", "/tmp"]  # noqa: S108 - inside
    # Folders that bwrap makes on its way to a mount are for root only.
    inside = [*confinement.files, *map(str, confinement.readable_if_present)]
    for folder in sorted({str(parent) for path in inside for parent in Path(path).parents if parent.name}):
        mounts += ["--dir", folder]
    for path in confinement.readable_if_present:
        mounts += ["--ro-bind-try", str(path), str(path)]
    for host, place in confinement.readable:
        mounts += ["--ro-bind", str(host), place]
    for host, place in confinement.writable:
        mounts += ["--bind", str(host), place]
    for place, descriptor in contents.items():
        mounts += ["--perms", "0444", "--ro-bind-data", str(descriptor), place]
    return mounts


def _system_mounts() -> list[str]:
    mounts = ["--ro-bind", "/usr", "/usr", "--dev", "/dev"]
    for name in ("bin", "lib", "lib64", "sbin"):
        # On a host whose /usr is not merged these are folders.
        same = ["--ro-bind-try", f"/{name}", f"/{name}"]
        mounts += ["--symlink", f"usr/{name}", f"/{name}"] if Path("/", name).is_symlink() else same
    return mounts


@contextmanager
def _memory_file(content: bytes) -> Iterator[int]:
    descriptor = os.memfd_create("file", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _namespace(kind: str) -> int:
    """Return a descriptor of the user namespace, of that of readers, or of a network namespace without even loopback;
    made once a process.
    """
    with _lock:
        try:
            return _make_namespace(kind)
        except OSError as error:
            raise BackendUnavailable(f"The host cannot make a {kind} namespace; run the doctor command.") from error


@cache
def _make_namespace(kind: str) -> int:
    """Return a descriptor that keeps the namespace; the process that was started in it ends before this returns."""
    space = "net" if kind == "net" else "user"
    with subprocess.Popen(
        ["unshare", f"--{space}", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None  # noqa: S101 - PIPE was requested
        assert process.stdout is not None  # noqa: S101
        # An echo: the namespace exists.
        process.stdin.write(b"\n")
        process.stdin.flush()
        if process.stdout.read(1) != b"\n":
            raise OSError("the namespace was not made")
        for name in ("uid_map", "gid_map") if kind in _ID_MAPS else ():
            Path(f"/proc/{process.pid}/{name}").write_text(_ID_MAPS[kind])
        descriptor = os.open(f"/proc/{process.pid}/ns/{space}", os.O_RDONLY | os.O_CLOEXEC)
        process.stdin.close()
        return descriptor
