"""Images for the fake driver: every reference is available at once, except for names that request a failure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from pathlib import Path

from vmbackend.errors import ImageNotFound, ImageUnreachable, ImageWrongPlatform
from vmbackend.images.reference import parse_reference
from vmbackend.images.types import Image, ImageConfig, never_cancelled


class FakeImageStore:
    """Same interface as ImageStore.

    `.../missing`, `.../unreachable` and `.../wrong-platform` raise the corresponding errors. `config` and `changes` are
    those of the images that are asked for from then on.
    """

    def __init__(self) -> None:
        self.config = ImageConfig()
        self.changes: tuple[str, ...] = ()
        self._known: dict[str, Image] = {}
        self._names: dict[str, str] = {}

    def ensure(
        self,
        reference: str,
        *,
        progress: Callable[[int, str], None],
        deadline: float,
        cancelled: Callable[[], bool] = never_cancelled,
    ) -> Image:
        parsed = parse_reference(reference)
        self._fail(parsed.path.rsplit("/", 1)[-1])
        progress(100, "The image is ready.")
        digest = parsed.digest or "sha256:" + hashlib.sha256(str(parsed).encode()).hexdigest()
        self._names.setdefault(digest, str(parsed))
        return self._known.setdefault(digest, Image(digest, Path("/dev/null"), 0, self.config, self.changes))

    def _fail(self, name: str) -> None:
        if name == "missing":
            raise ImageNotFound("The registry has no such image, or it is private.")
        if name == "unreachable":
            raise ImageUnreachable("The registry does not answer.")
        if name == "wrong-platform":
            raise ImageWrongPlatform("The image is not made for amd64.")

    def get(self, digest: str) -> Image | None:
        return self._known.get(digest)

    def names(self) -> list[str]:
        return sorted(self._names.values())

    def evict(self, *, in_use: Collection[str]) -> list[str]:
        return []

    def sweep(self) -> None:
        return None
