"""The content of the initramfs: the kit's programs with their libraries, its services and device nodes."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

from vmbackend.errors import BackendUnavailable
from vmbackend.guest import cpio
from vmbackend.guest.tools import run_tool

PROGRAM_PACKAGES = (
    "busybox-static",
    "dropbear-bin",
    "openssh-sftp-server",
    "qemu-guest-agent",
    "runit",
    "tini",
)
LIBRARY_PACKAGES = (
    "libc6",
    "libcrypt1",
    "libglib2.0-0",
    "libgmp10",
    "libnuma1",
    "libpcre2-8-0",
    "libtomcrypt1",
    "libtommath1",
    "libudev1",
    "liburing2",
    "zlib1g",
)
# Not in the initramfs, where they would cost every machine their size: brought into those that search (search.py).
SEARCH_PACKAGES = ("ripgrep", "libgcc-s1")
PACKAGES = (*PROGRAM_PACKAGES, *LIBRARY_PACKAGES, *SEARCH_PACKAGES)
STATIC_PROGRAMS = {"busybox": "bin/busybox", "tini": "usr/bin/tini-static"}
DYNAMIC_PROGRAMS = {
    "dropbear": "usr/sbin/dropbear",
    "qemu-ga": "usr/sbin/qemu-ga",
    "runsv": "usr/bin/runsv",
    "runsvdir": "usr/bin/runsvdir",
    "sftp-server": "usr/lib/openssh/sftp-server",
}
LIBRARY_FOLDERS = ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib64")
LOADER = "ld-linux-x86-64.so.2"
KIT = "run/kit"
C_FLAGS = ("-Os", "-std=gnu11", "-Wall", "-Wextra", "-Werror")


def build_initramfs(sources: Path, root: Path, scratch: Path, modules: Iterable[Path]) -> bytes:
    """Return the archive. `root` holds the unpacked packages; `scratch` receives what is compiled and patched."""
    guest, lookup = _compile(sources, scratch)
    programs = {name: _patched(root / path, scratch / name) for name, path in DYNAMIC_PROGRAMS.items()}
    run_tool("patchelf", "--add-needed", lookup.name, str(programs["sftp-server"]))
    nodes = [cpio.program(f"{KIT}/bin/{name}", path) for name, path in programs.items()]
    nodes += [cpio.program(f"{KIT}/bin/{name}", root / path) for name, path in STATIC_PROGRAMS.items()]
    libraries = _closure(root, [*programs.values(), lookup]) | {lookup.name: lookup}
    nodes += [cpio.program(f"{KIT}/lib/{name}", path) for name, path in libraries.items()]
    nodes += [cpio.program(f"{KIT}/bin/guest", guest), cpio.symlink("init", f"{KIT}/bin/guest")]
    return cpio.archive([*nodes, *_base_files(), *_services(), *_modules(modules)])


def search_files(root: Path) -> dict[str, Path]:
    """Return the search program, and those libraries of it that the initramfs has not, by name."""
    program = root / "usr/bin/rg"
    inside = _closure(root, [root / path for path in DYNAMIC_PROGRAMS.values()])
    libraries = {name: path for name, path in _closure(root, [program]).items() if name not in inside}
    return {**libraries, "rg": program}


def _compile(sources: Path, scratch: Path) -> tuple[Path, Path]:
    guest, lookup = scratch / "guest", scratch / "libkitlookup.so"
    files = sorted(str(path) for path in sources.glob("*.c") if path.name != "lookup.c")
    run_tool("musl-gcc", "-static", "-s", *C_FLAGS, "-o", str(guest), *files)
    run_tool("gcc", "-shared", "-fPIC", "-nostdlib", "-s", *C_FLAGS, "-o", str(lookup), str(sources / "lookup.c"))
    return guest, lookup


def _patched(source: Path, target: Path) -> Path:
    """Set RPATH instead of RUNPATH: RPATH also applies to the libraries of the program's libraries."""
    target.write_bytes(source.read_bytes())
    target.chmod(0o755)
    run_tool("patchelf", "--set-interpreter", f"/{KIT}/lib/{LOADER}", str(target))
    run_tool("patchelf", "--force-rpath", "--set-rpath", f"/{KIT}/lib", str(target))
    return target


def _closure(root: Path, programs: Iterable[Path]) -> dict[str, Path]:
    """Return all libraries that `programs` need, directly or not, by name."""
    found = {LOADER: _library(root, LOADER)}
    pending = list(programs)
    while pending:
        for name in run_tool("patchelf", "--print-needed", str(pending.pop())).decode().split():
            if name not in found and not name.startswith("libkit"):
                found[name] = _library(root, name)
                pending.append(found[name])
    return found


def _library(root: Path, name: str) -> Path:
    for folder in LIBRARY_FOLDERS:
        path = root / folder / name
        # An absolute link would lead to the build host's library.
        if path.is_symlink() and path.readlink().is_absolute():
            path = root / path.readlink().relative_to("/")
        if path.exists():
            return path
    raise BackendUnavailable(f"The kit's packages do not contain {name}: LIBRARY_PACKAGES is incomplete.")


def _base_files() -> list[cpio.Node]:
    shell, login = f"/{KIT}/bin/shell", f"/{KIT}/bin/login"
    return [
        cpio.Node("dev/console", stat.S_IFCHR | 0o600, device=(5, 1)),
        *(cpio.directory(path) for path in ("proc", "sys", "tmp", "run", "sbin", "bin")),
        cpio.symlink(f"{KIT}/bin/shell", "guest"),
        cpio.symlink(f"{KIT}/bin/login", "guest"),
        cpio.symlink(f"{KIT}/bin/askpass", "guest"),
        cpio.symlink("bin/sh", f"/{KIT}/bin/busybox"),
        cpio.regular("etc/passwd", f"root:*:0:0:root:/{KIT}/home:{shell}\n".encode()),
        cpio.regular("etc/passwd.ssh", f"root:*:0:0:root:/ssh:{login}\n".encode()),  # of the users' server
        cpio.regular("etc/group", b"root:x:0:\ntty:x:5:\n"),
        cpio.regular("etc/shells", f"{shell}\n{login}\n".encode()),
        cpio.regular("etc/nsswitch.conf", b"passwd: files\ngroup: files\nshadow: files\n"),
        cpio.directory(f"{KIT}/home", 0o700),
        cpio.directory(f"{KIT}/home/.ssh", 0o700),
        cpio.directory("ssh", 0o700),
        cpio.directory("ssh/.ssh", 0o700),
    ]


def _services() -> list[cpio.Node]:
    """Return runit's service directories. `down`: the stage starts the main process, once the agent runs."""
    service = f"{KIT}/service"
    return [
        _script(f"{service}/agent/run", "agent"),
        _script(f"{service}/main/run", "process"),
        _script(f"{service}/main/finish", "finish"),
        _script(f"{service}/main/control/t", "stop"),
        _script(f"{service}/main/log/run", "log"),
        cpio.regular(f"{service}/main/down", b""),
    ]


def _script(path: str, applet: str) -> cpio.Node:
    """Return a script without a shell: the kernel starts the applet directly, which is faster."""
    return cpio.regular(path, f"#!/{KIT}/bin/guest {applet}\n".encode(), 0o755)


def _modules(modules: Iterable[Path]) -> list[cpio.Node]:
    paths = list(modules)
    order = "".join(f"{path.name}\n" for path in paths).encode()
    if not paths:
        return []
    return [
        cpio.regular("modules/order", order),
        *(cpio.regular(f"modules/{p.name}", p.read_bytes()) for p in paths),
    ]
