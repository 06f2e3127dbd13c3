"""Which digest each tag of a pool has: asked beside the pool's rounds, as a registry may take minutes to answer."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from vmbackend.errors import BackendError

if TYPE_CHECKING:
    from vmbackend.images.store import ImageStore

logger = logging.getLogger(__name__)

DIGEST_SECONDS = 60.0
PULL_SECONDS = 300.0
# A round waits as long for answers, which most registries give within.
ROUND_WAIT_SECONDS = 2.0
# Threads that wait for registries. Each ends after PULL_SECONDS at the latest.
MOST_AT_ONCE = 16


class TagDigests:
    """The digests as last answered. One thread calls it, and any thread `note_digest`; `is_ended` ends the lookups
    that are under way.
    """

    def __init__(self, images: ImageStore, is_ended: Callable[[], bool]) -> None:
        self._images, self._is_ended = images, is_ended
        self._known: dict[str, tuple[str, float]] = {}  # by image; when it was asked for, monotonic
        self._changing = threading.Lock()
        self._asking: dict[str, threading.Thread] = {}
        self._answers: SimpleQueue[tuple[str, str, float]] = SimpleQueue()

    def digest(self, image: str) -> str:
        """Return the tag's digest; empty while it is not known."""
        return self._known.get(image, ("", 0.0))[0]

    def note_digest(self, image: str, digest: str) -> None:
        """Note what somebody else was answered now. An answer that was asked for before does not count any more."""
        with self._changing:
            self._known[image] = digest, time.monotonic()

    def refresh(self, images: Iterable[str]) -> dict[str, str]:
        """Ask once a minute for each image, and wait a moment. Return the digests that were answered since the last
        call, by image.
        """
        self._asking = {image: thread for image, thread in self._asking.items() if thread.is_alive()}
        begun = [self._ask(image) for image in images if self._is_due(image)]
        until = time.monotonic() + ROUND_WAIT_SECONDS
        for thread in begun:
            thread.join(max(0.0, until - time.monotonic()))
        return self._take_answers()

    def _is_due(self, image: str) -> bool:
        if image in self._asking or len(self._asking) >= MOST_AT_ONCE:
            return False
        return image not in self._known or time.monotonic() - self._known[image][1] >= DIGEST_SECONDS

    def _ask(self, image: str) -> threading.Thread:
        """Begin a lookup. Until it is answered the digest is not known: nothing is made of an old one."""
        began = time.monotonic()
        with self._changing:
            self._known[image] = "", began
        thread = threading.Thread(target=self._look_up, args=(image, began), name="warm-pool-digest", daemon=True)
        self._asking[image] = thread
        thread.start()
        return thread

    def _look_up(self, image: str, began: float) -> None:
        deadline = began + PULL_SECONDS
        try:
            found = self._images.ensure(image, progress=lambda *_: None, deadline=deadline, cancelled=self._is_ended)
        except BackendError as exc:
            logger.warning("pool: %s cannot be resolved: %s", image, exc.message)
            return
        self._answers.put((image, found.digest, began))

    def _take_answers(self) -> dict[str, str]:
        answered: dict[str, str] = {}
        while True:
            try:
                image, digest, began = self._answers.get_nowait()
            except Empty:
                return answered
            with self._changing:
                if self._known.get(image) == ("", began):
                    self._known[image] = digest, began
                    answered[image] = digest
