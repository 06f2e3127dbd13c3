"""From an index to the manifest of this host's platform, level by level: an index may list further indexes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vmbackend.errors import ImageBroken
from vmbackend.images.reference import Reference
from vmbackend.images.registry import checked_digest, entries_of, platform_name, wrong_platform

# A registry chooses what an index says: each level and each document costs a query.
MAX_LEVELS = 5
MAX_DOCUMENTS = 24
# Without a variant an entry runs on every machine of its architecture, as do those of the first one.
_FIRST_VARIANTS = ("", "v1", "v8")
_ATTESTATION = "vnd.docker.reference.type"
# The last four: of images that old builders and registries have written, which Docker takes as images too.
_CONFIG_TYPES = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
    "application/octet-stream",
    "application/json",
    "text/html",
    "",
)

Document = dict[str, Any]


class PlatformSearch:
    """The search for the manifest of `linux/ARCH` in a manifest or an index.

    `manifest_of` and `config_of` return the manifest and the image's configuration of a digest, and raise ImageError.
    """

    def __init__(
        self,
        reference: Reference,
        arch: str,
        manifest_of: Callable[[str], Document],
        config_of: Callable[[str], Document],
    ) -> None:
        self._reference, self._wanted, self._arch = reference, f"linux/{arch}", arch
        self._manifest_of, self._config_of = manifest_of, config_of
        self._documents = 0
        self._offered: set[str] = set()

    def find(self, digest: str) -> tuple[str, Document]:
        """Return digest and content of the manifest. Raise ImageWrongPlatform if there is none for this platform,
        ImageBroken for indexes that are damaged, too deep or too many, and for what is no image.
        """
        manifest = self._fetch(digest)
        if "manifests" not in manifest and not _is_image(manifest):
            raise ImageBroken(f"{self._reference} is an artifact of another kind, not an image.")
        found = self._descend(digest, manifest, MAX_LEVELS, is_named=True)
        if found is None:
            raise wrong_platform(self._reference, self._offered, self._arch)
        return found

    def _descend(self, digest: str, manifest: Document, levels: int, *, is_named: bool) -> tuple[str, Document] | None:
        """Follow a descriptor. `is_named`: what led here says that it is for this platform; otherwise the configuration
        decides.
        """
        if "manifests" not in manifest:
            is_ours = _is_image(manifest) and (is_named or self._says_ours(digest))
            return (digest, manifest) if is_ours else None
        if levels == 0:
            raise ImageBroken(f"The image's index has more than {MAX_LEVELS} levels.")
        for entry in self._candidates(manifest):
            inner = checked_digest(entry.get("digest"))
            named = _platform(entry) == self._wanted
            found = self._descend(inner, self._fetch(inner), levels - 1, is_named=named)
            if found is not None:
                return found
        return None

    def _candidates(self, manifest: Document) -> list[Document]:
        """Return the entries for this platform, then those that do not say for which they are."""
        entries = [entry for entry in entries_of(manifest, "manifests") if not _is_attestation(entry)]
        self._offered |= {_platform(entry) for entry in entries}
        ours = [entry for entry in entries if _platform(entry) == self._wanted]
        ours.sort(key=lambda entry: str(entry["platform"].get("variant") or "") not in _FIRST_VARIANTS)
        return ours + [entry for entry in entries if not _platform(entry)]

    def _fetch(self, digest: str) -> Document:
        self._count()
        return self._manifest_of(digest)

    def _says_ours(self, digest: str) -> bool:
        """Return whether the image's configuration is for this platform."""
        self._count()
        named = platform_name(self._config_of(digest))
        self._offered.add(named)
        return named == self._wanted

    def _count(self) -> None:
        self._documents += 1
        if self._documents > MAX_DOCUMENTS:
            raise ImageBroken("The image's index lists too many images that do not say for which platform they are.")


def _platform(entry: Document) -> str:
    platform = entry.get("platform")
    return platform_name(platform) if isinstance(platform, dict) else ""


def _is_attestation(entry: Document) -> bool:
    """Return whether it describes another entry and is no image, as builders add them with the platform
    `unknown/unknown`.
    """
    annotations = entry.get("annotations")
    return "unknown" in _platform(entry) or (isinstance(annotations, dict) and _ATTESTATION in annotations)


def _is_image(manifest: Document) -> bool:
    """Return whether it is an image, not a chart, a signature or what else registries keep."""
    config = manifest.get("config")
    kind = config.get("mediaType") if isinstance(config, dict) else None
    return kind is None or kind in _CONFIG_TYPES
