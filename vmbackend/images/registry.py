"""Queries to registries through skopeo, and the translation of its errors."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from vmbackend.errors import (
    CapacityExceeded,
    ImageBroken,
    ImageError,
    ImageNotFound,
    ImageUnreachable,
    ImageWrongPlatform,
)
from vmbackend.images.limits import UsageLimit
from vmbackend.images.process import CompletedTool, run_confined_tool
from vmbackend.images.pull_network import pull_network
from vmbackend.images.reference import Reference
from vmbackend.images.types import ImageSettings, Job
from vmbackend.tool_confinement import ToolConfinement, give_to_tools

log = logging.getLogger(__name__)
MAX_DOCUMENT = 4 << 20  # bytes of a manifest or configuration
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_OLD_MANIFEST = "application/vnd.docker.distribution.manifest.v1"

_PRIVATE = re.compile(r"unauthorized|denied|authentication required|forbidden|invalid username/password", re.I)
_ABSENT = re.compile(r"manifest unknown|name unknown|not found|repository name not known|\b404\b", re.I)
_LIMITED = re.compile(r"toomanyrequests|too many requests|\b429\b", re.I)
_FULL = re.compile(r"no space left on device|disk quota exceeded", re.I)
_CORRUPT = re.compile(
    r"digest did not match|does not match|digest mismatch|unexpected size|gzip|invalid manifest", re.I
)
# Files of the host, for the registries' certificates and what the administrator configured for every container tool.
_HOST_FILES = tuple(
    map(Path, ("/etc/ssl", "/etc/ca-certificates", "/etc/pki", "/etc/containers", "/etc/docker/certs.d"))
)
_HOSTS = b"127.0.0.1 localhost\n"
_AUTH_FILE = "/run/auth.json"
# Go frees more often above it; the hard limit is the confinement's.
_GO_MEMORY = "768MiB"
_MAX_AUTH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """The source of an image for skopeo: its location, the options it needs, and the reference for messages.

    `registry`: the registry that it asks; None for the local store, which `mounts` (host path, path inside) shows to
    it.
    """

    location: str
    options: tuple[str, ...]  # of `copy`, prefixed with --src-; `inspect` takes them without
    reference: Reference
    registry: str | None = None
    mounts: tuple[tuple[Path, str], ...] = ()

    def inspect_options(self) -> list[str]:
        return [option.replace("--src-", "--", 1) for option in self.options]


def registry_source(reference: Reference, settings: ImageSettings, digest: str | None = None) -> Source:
    """Return the source of a reference in a registry, by `digest` if given."""
    domain = settings.registry_mirrors.get(reference.domain, reference.domain)
    pinned = digest or reference.digest
    suffix = f"@{pinned}" if pinned else f":{reference.tag}"
    options = [f"--src-authfile={_AUTH_FILE}" if settings.auth_file else "--src-no-creds"]
    if domain in settings.insecure_registries:
        options.append("--src-tls-verify=false")
    return Source(f"docker://{domain}/{reference.path}{suffix}", tuple(options), reference, domain)


def fetch_manifest(source: Source, settings: ImageSettings, job: Job) -> tuple[str, dict[str, Any]]:
    """Return digest and content of the source's manifest or manifest list. Raise ImageError and its subclasses."""
    raw = _inspect(source, settings, job, what="--raw")
    manifest = _json(raw)
    if str(manifest.get("mediaType", "")).startswith(_OLD_MANIFEST) or manifest.get("schemaVersion") != 2:
        raise ImageBroken(f"The image {source.reference} has an unsupported old format.")
    return f"sha256:{hashlib.sha256(raw).hexdigest()}", manifest


def fetch_pinned_manifest(source: Source, digest: str, settings: ImageSettings, job: Job) -> dict[str, Any]:
    """Return the manifest or manifest list with that digest. Raise ImageBroken for another one, else as
    `fetch_manifest`.
    """
    found, manifest = fetch_manifest(source, settings, job)
    if found != digest:
        raise ImageBroken(f"The registry sent another manifest for {source.reference} than was asked for.")
    return manifest


def fetch_config(source: Source, settings: ImageSettings, job: Job) -> dict[str, Any]:
    """Return the image's configuration, of whatever platform. Raise ImageError and its subclasses."""
    return _json(_inspect(source, settings, job, what="--config"))


def fetch_own_config(source: Source, settings: ImageSettings, job: Job) -> dict[str, Any]:
    """Return the image's configuration. Raise ImageWrongPlatform for another platform."""
    config = fetch_config(source, settings, job)
    found = platform_name(config)
    if found != f"linux/{settings.arch}":
        raise wrong_platform(source.reference, [found], settings.arch)
    return config


def platform_name(document: dict[str, Any]) -> str:
    """Return `os/architecture` of a configuration or of the platform of an index's entry; empty if it says neither."""
    system, architecture = document.get("os"), document.get("architecture")
    return f"{system}/{architecture}" if system or architecture else ""


def layer_bytes(manifest: dict[str, Any]) -> int:
    """Return sum of the layers' packed sizes in the manifest. Raise ImageBroken."""
    sizes = [layer.get("size") for layer in entries_of(manifest, "layers")]
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise ImageBroken("The image's manifest is damaged.")
    return sum(size for size in sizes if size)


def download_image(source: Source, layout: Path, settings: ImageSettings, job: Job, limit: UsageLimit) -> None:
    """Copy the image into the new layout directory as `image`, layers as gzip (umoci reads no zstd).

    Raise ImageUnreachable after `pull_timeout` and whatever `limit` raises.
    """
    until = time.monotonic() + settings.pull_timeout
    argv = ["skopeo", "copy", "--quiet", *source.options, "--dest-compress-format=gzip", source.location]

    def tick() -> None:
        limit.check_usage()
        if time.monotonic() > until:
            raise _unreachable(source.reference)

    layout.mkdir(mode=0o700)
    give_to_tools(layout)
    finished = _run_skopeo([*argv, "oci:/oci:image"], source, settings, job, tick, writable=((layout, "/oci"),))
    if finished.returncode != 0:
        raise translate_error(finished, source.reference)


def _run_skopeo(
    argv: list[str],
    source: Source,
    settings: ImageSettings,
    job: Job,
    tick: Callable[[], None],
    *,
    writable: tuple[tuple[Path, str], ...] = (),
    max_stdout: int = 64 << 10,
) -> CompletedTool:
    confinement = ToolConfinement(
        readable=source.mounts,
        readable_if_present=(*_HOST_FILES, *_certificate_paths()),
        writable=writable,
        files=_files(settings),
    )
    run = partial(run_confined_tool, argv, job=job, tick=tick, max_stdout=max_stdout)
    if source.registry is None:
        return run(confinement)
    with pull_network(source.registry, settings.listed_registries, settings.refused) as network:
        environment = {"GOMEMLIMIT": _GO_MEMORY, **network.environment()}
        return run(replace(confinement, network=network.descriptor), environment=environment)


def _files(settings: ImageSettings) -> dict[str, bytes]:
    """Raise ImageUnreachable if the file of credentials cannot be read."""
    if settings.auth_file is None:
        return {"/etc/hosts": _HOSTS}
    try:
        return {"/etc/hosts": _HOSTS, _AUTH_FILE: settings.auth_file.read_bytes()[:_MAX_AUTH_BYTES]}
    except OSError as error:
        log.error("the file of registry credentials cannot be read: %s", error)
        raise ImageUnreachable("The platform's credentials for registries cannot be read.") from error


def _certificate_paths() -> list[Path]:
    """Return the paths of further certificates that the operator's environment names."""
    listed = ":".join(os.environ.get(name, "") for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
    return [Path(path) for path in listed.split(":") if path.startswith("/")]


def entries_of(manifest: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects of a list in a manifest. Raise ImageBroken."""
    value = manifest.get(name)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ImageBroken("The image's manifest is damaged.")
    return value


def checked_digest(value: object) -> str:
    """Validate a digest from untrusted JSON. Raise ImageBroken."""
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ImageBroken("The image's manifest is damaged.")
    return value


def translate_error(finished: CompletedTool, reference: Reference) -> ImageError | CapacityExceeded:
    """Translate skopeo's error output, which is logged and not part of the message."""
    output = finished.stderr
    log.warning("skopeo failed for %s: %s", reference, output[-2000:].strip())
    for pattern, error in _meanings(reference):
        if pattern.search(output):
            return error
    return _unreachable(reference)


def _meanings(reference: Reference) -> list[tuple[re.Pattern[str], ImageError | CapacityExceeded]]:
    """Return patterns with their errors in order of precedence: some outputs match several patterns."""
    host = "The local image store" if reference.is_local else reference.domain
    private = f"{host} does not provide {reference}: it may be private, or the name may be wrong."
    return [
        (_FULL, CapacityExceeded("The host has no disk space left for this image.")),
        (_LIMITED, ImageUnreachable(f"{host} limits the rate of requests; {reference} was not fetched.")),
        (_PRIVATE, ImageNotFound(private)),
        (_ABSENT, ImageNotFound(f"{host} has no image {reference}.")),
        (_CORRUPT, ImageBroken(f"The data that {host} sent for {reference} is damaged.")),
    ]


def _inspect(source: Source, settings: ImageSettings, job: Job, *, what: str) -> bytes:
    until = time.monotonic() + settings.registry_timeout

    def tick() -> None:
        if time.monotonic() > until:
            raise _unreachable(source.reference)

    argv = ["skopeo", "inspect", what, *source.inspect_options(), source.location]
    finished = _run_skopeo(argv, source, settings, job, tick, max_stdout=MAX_DOCUMENT)
    if finished.returncode != 0:
        raise translate_error(finished, source.reference)
    if finished.truncated:
        raise ImageBroken("The image's description is too large.")
    return finished.stdout


def _json(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ImageBroken("The image's description is damaged.") from error
    if not isinstance(value, dict):
        raise ImageBroken("The image's description is damaged.")
    return value


def _unreachable(reference: Reference) -> ImageUnreachable:
    """Return one message for everything between this host and an answer: more would tell what runs on which port."""
    if reference.is_local:
        return ImageUnreachable(f"The local image store could not be read; {reference} was not fetched.")
    return ImageUnreachable(
        f"The registry {reference.domain} gave no usable answer; {reference} was not fetched. A registry must answer "
        "in time, at a public address, with a valid certificate; the platform's operator can allow others by a setting."
    )


def wrong_platform(reference: Reference, offered: Iterable[str], arch: str) -> ImageWrongPlatform:
    """Return the error of an image for other platforms, as `platform_name` names them."""
    names = ", ".join(sorted({name for name in offered if name}))[:200] or "no known platform"
    # The registry's words: no control characters or halves of surrogate pairs, which no database stores.
    has = "".join(letter if letter.isprintable() else "?" for letter in names)
    return ImageWrongPlatform(f"The image {reference} is made for {has}; this host needs linux/{arch}.")
