"""Images built on this host for the local store: from a directory, and the default image from Debian."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from vmbackend.errors import ImageBroken, ImageNotFound
from vmbackend.images.layout import blob_path, find_local, publish_image, read_index
from vmbackend.images.process import CompletedTool, run_tool
from vmbackend.images.reference import parse_reference
from vmbackend.images.types import ImageConfig, Job, never_cancelled
from vmbackend.locks import try_lock, wait_lock
from vmbackend.mounts import mounted_below, unmount
from vmbackend.trees import remove_tree

log = logging.getLogger(__name__)

DEFAULT_NAME = "localhost/workspace:latest"
SUITE = "bookworm"
RECIPE_LABEL = "org.microvm.workspace.recipe"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BUILD_SECONDS = 1800.0
# With less room at any time, what failed has failed for that; what its tools say about it is often cut off.
FULL_BYTES = 16 << 20
MAX_WORDS = 500
PACKAGES = [
    "ca-certificates",
    "curl",
    "git",
    "iproute2",
    "iputils-ping",
    "jq",
    "less",
    "make",
    "nano",
    "openssh-client",
    "procps",
    "python3",
    "python3-pip",
    "python3-venv",
    "sudo",
    "tmux",
    "unzip",
    "vim-tiny",
    "wget",
    "xz-utils",
]
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/doc/*")
_SOURCES = """\
deb http://deb.debian.org/debian bookworm main
deb http://deb.debian.org/debian bookworm-updates main
deb http://deb.debian.org/debian-security bookworm-security main
"""
_HOST_SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources")
_CONFIG = ImageConfig(cmd=("/bin/bash",), env={"PATH": PATH, "LANG": "C.UTF-8"}, working_dir="/root")


def _silent(_percent: int, _message: str) -> None:
    """Report nothing, for callers that need no progress."""


def add_directory_image(
    local_store: Path, name: str, rootfs_dir: Path, config: ImageConfig, *, arch: str = "amd64"
) -> str:
    """Add a directory to the local store as an image of one layer; return the manifest's digest.

    Owners, modes, xattrs, hard links and devices are kept. Replaces an image of that name.
    Raise ImageBroken; on failure the store is unchanged.
    """
    job = Job(_silent, time.monotonic() + BUILD_SECONDS, never_cancelled)
    with _scratch(local_store, job) as scratch:
        layer = scratch / "layer.tar"
        options = ["--create", "--numeric-owner", "--xattrs", "--xattrs-include=*", "--sort=name"]
        _run_step(["tar", *options, "--file", layer, "--directory", rootfs_dir, "."], job, scratch)
        return _add_layer(local_store, _local_name(name), scratch, layer=layer, config=config, arch=arch, job=job)


def build_default_image(
    local_store: Path,
    name: str = DEFAULT_NAME,
    progress: Callable[[int, str], None] = _silent,
    *,
    rebuild: bool = False,
    arch: str = "amd64",
) -> str:
    """Build the default image (Debian with common tools) and return its digest.

    Return at once if the store has one of the same recipe, unless `rebuild` (for Debian's newer packages). Takes
    about a minute and needs root and a Debian mirror: the host's own, else deb.debian.org. Raise ImageBroken,
    DeadlineExceeded, BackendUnavailable; on failure the store is unchanged; scratch of a process that died is removed
    by the next build.
    """
    job = Job(progress, time.monotonic() + BUILD_SECONDS, never_cancelled)
    full_name = _local_name(name)
    recipe = _recipe(arch)
    if not rebuild and (digest := _present(local_store, full_name, recipe)):
        _remove_unused_scratch(local_store)
        job.report_progress(100, "The default image is up to date.")
        return digest
    with _scratch(local_store, job) as scratch:
        if not rebuild and (digest := _present(local_store, full_name, recipe)):
            job.report_progress(100, "Another process has built the default image.")
            return digest
        layer = scratch / "layer.tar"
        _bootstrap(scratch, layer, arch, job)
        job.report_progress(85, "Packing the default image.")
        config = ImageConfig(_CONFIG.entrypoint, _CONFIG.cmd, _CONFIG.env, "/root", labels={RECIPE_LABEL: recipe})
        digest = _add_layer(local_store, full_name, scratch, layer=layer, config=config, arch=arch, job=job)
    job.report_progress(100, "The default image is built.")
    return digest


def _bootstrap(scratch: Path, layer: Path, arch: str, job: Job) -> None:
    sources = scratch / "sources.list"
    sources.write_text(_SOURCES)
    started = time.monotonic()

    def tick() -> None:
        # The bootstrapper reports no progress; it usually takes a minute.
        share = 1 - 0.5 ** ((time.monotonic() - started) / 30)
        job.report_progress(5 + 75 * share, "Installing Debian into the default image.")

    argv: list[str | Path] = [
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=apt", f"--architectures={arch}", "--format=tar"),
        '--aptopt=Apt::Install-Recommends "false"',
        f"--include={','.join(PACKAGES)}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT),
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        f"--customize-hook=upload {sources} /etc/apt/sources.list",
        '--customize-hook=rm -f "$1"/etc/apt/sources.list.d/* "$1"/etc/hostname "$1"/etc/resolv.conf',
        SUITE,
        layer,
        *_host_sources(),
    ]
    _run_step(argv, job, scratch, tick=tick, mounts=True)


def _host_sources() -> list[str]:
    """Return the host's own mirrors if it runs the same suite: they are known to be reachable."""
    paths = (Path(name) for name in _HOST_SOURCES)
    return [str(path) for path in paths if path.is_file() and SUITE in path.read_text(errors="replace")]


def _add_layer(
    local_store: Path, name: str, scratch: Path, *, layer: Path, config: ImageConfig, arch: str, job: Job
) -> str:
    image = scratch / "oci"
    tagged = f"{image}:image"
    settings = [f"--architecture={arch}", "--os=linux", *_config_options(config)]
    steps: list[list[str | Path]] = [
        ["umoci", "init", "--layout", image],
        ["umoci", "new", "--image", tagged],
        ["umoci", "raw", "add-layer", "--image", tagged, layer],
        ["umoci", "config", "--image", tagged, *settings],
        ["umoci", "gc", "--layout", image],
    ]
    for step in steps:
        _run_step(step, job, scratch)
    return publish_image(local_store, name, image, job)


def _config_options(config: ImageConfig) -> list[str]:
    options = [f"--config.entrypoint={word}" for word in config.entrypoint]
    options += [f"--config.cmd={word}" for word in config.cmd]
    options += [f"--config.env={key}={value}" for key, value in config.env.items()]
    options += [f"--config.label={key}={value}" for key, value in config.labels.items()]
    options += [f"--config.exposedports={port}" for port in config.exposed_ports]
    options += [f"--config.volume={path}" for path in config.volumes]
    options += [f"--config.workingdir={config.working_dir}"] if config.working_dir else []
    options += [f"--config.stopsignal={config.stop_signal}"] if config.stop_signal else []
    return options + ([f"--config.user={config.user}"] if config.user else [])


@contextmanager
def _scratch(local_store: Path, job: Job) -> Iterator[Path]:
    """Yield a scratch directory on the store's file system. One build at a time; scratch of dead builds is removed
    first.
    """
    local_store.mkdir(parents=True, exist_ok=True)
    with wait_lock(local_store / ".build.lock", job.check_cancelled):
        _remove_stale_scratch(local_store)
        scratch = Path(tempfile.mkdtemp(prefix=".build-", dir=local_store.resolve()))
        try:
            yield scratch
        finally:
            _remove_scratch(scratch)


def _remove_unused_scratch(local_store: Path) -> None:
    """Remove the scratch of dead builds, unless a build runs now. Raise BackendUnavailable."""
    if any(local_store.glob(".build-*")):
        with try_lock(local_store / ".build.lock") as free:
            if free:
                _remove_stale_scratch(local_store)


def _remove_stale_scratch(local_store: Path) -> None:
    for stale in local_store.resolve().glob(".build-*"):
        _remove_scratch(stale)


def _remove_scratch(scratch: Path) -> None:
    """Remove scratch. A build that was killed may have left the host's file systems mounted in it: it stays if they
    cannot be unmounted, as their files must not be removed. Raise BackendUnavailable.
    """
    try:
        unmount(mounted_below(scratch))
        mounted = mounted_below(scratch)
    except OSError as error:
        log.error("%s stays: its mounts cannot be read: %s", scratch, error)
        return
    if mounted:
        log.error("%s stays: these mounts cannot be unmounted: %s", scratch, mounted)
    else:
        remove_tree(scratch)


def _recipe(arch: str) -> str:
    parts: tuple[object, ...] = (SUITE, arch, PACKAGES, _LEFT_OUT, _SOURCES, _CONFIG)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _present(local_store: Path, name: str, recipe: str) -> str | None:
    """Return the digest of the image of that name, if it was built by that recipe."""
    if not read_index(local_store):
        return None
    try:
        digest = find_local(local_store, parse_reference(name))
        manifest = json.loads(blob_path(local_store, digest).read_bytes())
        document = json.loads(blob_path(local_store, manifest["config"]["digest"]).read_bytes())
        labels: Mapping[str, str] = document["config"]["Labels"]
    except (ImageNotFound, OSError, ValueError, KeyError, TypeError):
        return None
    return digest if labels.get(RECIPE_LABEL) == recipe else None


def _local_name(name: str) -> str:
    reference = parse_reference(name)
    if not reference.is_local or reference.digest:
        raise ImageBroken("Images of the local store are named localhost/name:tag.")
    return reference.tagged


def _run_step(
    argv: Sequence[str | Path],
    job: Job,
    scratch: Path,
    *,
    tick: Callable[[], None] | None = None,
    mounts: bool = False,
) -> None:
    """Raise ImageBroken with what the tool says, and as `run_tool` does."""
    least = shutil.disk_usage(scratch).free

    def watch() -> None:
        nonlocal least
        least = min(least, shutil.disk_usage(scratch).free)
        if tick is not None:
            tick()

    done = run_tool(argv, job=job, tmp=scratch, tick=watch, mounts=mounts)
    if done.returncode == 0:
        return
    if least < FULL_BYTES:
        raise ImageBroken(f"The image could not be built: the disk of {scratch.parent} is full.")
    raise ImageBroken(f"The image could not be built: {_words_of(done) or _end_of(argv[0], done.returncode)}")


def _words_of(done: CompletedTool) -> str:
    words = done.stderr.strip()
    return words if len(words) <= MAX_WORDS else f"...{words[-MAX_WORDS:]}"


def _end_of(program: str | Path, code: int) -> str:
    return f"{program} was ended by signal {-code}." if code < 0 else f"{program} ended with code {code}."
