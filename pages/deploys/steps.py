"""Steps of a deploy: receive the folder, make a release of it, make the release live.

Each step may run again after a death.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from itertools import islice

from django.conf import settings
from django.db import DatabaseError, transaction

from accounts.services import account_lock
from common.connections import release_connection
from common.errors import DomainError, NotFound
from common.work.leases import ClaimLost
from pages import errors, publication
from pages.deploys import places, queue
from pages.deploys.outcomes import deploy_succeeded
from pages.deploys.requests import require_kept_bytes
from pages.models import Page, PageDeploy, PageRelease
from pages.releases.disk_use import added_bytes
from pages.releases.errors import ExportLimit
from pages.releases.export import export_receive
from pages.releases.limits import ExportLimits
from pages.releases.received import Received, Skipped
from pages.services import lock_page, write_live_release, write_page
from vmbackend.guest.left_out import sockets_left_out
from workspaces.errors import PathInvalid, PathNotFound
from workspaces.guests import MachineLook, address_of, directory_archive
from workspaces.models import Workspace

logger = logging.getLogger(__name__)

TOO_MANY_STEPS = "Too many files or links lie or lead deep below the exported folder. Use fewer levels of folders."
CHUNK_SECONDS = 60.0
# An export that takes longer gives up its place. Ten thousand files take 4 s on two busy cores.
SLOW_SECONDS = 15.0
LOOK_SECONDS = 1.0
# Chunks of padding until the guest's program ends: tar writes blocks of 10 KiB.
AFTER_END_CHUNKS = 16
AFTER_END_SECONDS = 1.0


def release_export(deploy: PageDeploy, lost: threading.Event) -> None:
    """Receive the folder and make a release of it, which is not live yet.

    A death leaves `incoming/<claim>` or a release without a row; the next reconcile removes both. Raise the errors of
    `call_errors`, ExportLimitPassed, FolderEmpty, KeptBytesExceeded, NotFound, ExportDamaged, OSError, ClaimLost.
    """
    page = deploy.page
    workspace = Workspace.objects.filter(pk=deploy.workspace_id, account_id=page.account_id).first()
    if workspace is None:
        raise NotFound("The workspace has been deleted.")
    address = address_of(workspace)
    queue.write_facts(deploy, step="export")
    store = publication.page_store()
    known = store.known_contents(page.pk)
    # Each attempt has its own folder: an attempt that has lost its claim may go on for a moment beside the next.
    with store.incoming_open(deploy.claim) as incoming:
        look = _ExportLook(deploy, lost)
        said = bytearray()
        chunks = _looked_at(directory_archive(address, deploy.path, CHUNK_SECONDS, look, said), look)
        with closing(chunks):
            received = _receive_within_limits(chunks, incoming, known, deploy.path)
            look.end_soon()
            _await_end(chunks)
        for path in sockets_left_out(bytes(said)):
            received.skip(path, "socket")
        if not received.files:
            raise errors.FolderEmpty(details={"path": [errors.FolderEmpty.message]})
        number = _reserve_release(deploy, added_bytes(received.files, known))
        release_connection()
        with _making(lost):
            made = store.release_create(page.pk, number, deploy.claim, received)
    _record_release(deploy, number, made.files, made.bytes, (made.skipped, made.skipped_count))


@lru_cache(maxsize=1)
def _making_places() -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(settings.ENV.pages_threads)


@contextmanager
def _making(lost: threading.Event) -> Iterator[None]:
    """Wait for the right to make a release. Compressing needs processors and memory: slow exports that end together
    must take turns.

    Raise ClaimLost if the claim is lost during the wait.
    """
    making = _making_places()
    while not making.acquire(timeout=LOOK_SECONDS):
        if lost.is_set():
            raise ClaimLost
    try:
        yield
    finally:
        making.release()


def _await_end(chunks: Iterator[bytes]) -> None:
    """Wait a short time for the guest's program, which ends soon after its archive.

    A program that goes on is not waited for. However it ends, what was received does not change. Raise ClaimLost.
    """
    with suppress(DomainError, _ExportEnded):
        for _ in islice(chunks, AFTER_END_CHUNKS):
            pass


def _receive_within_limits(chunks: Iterator[bytes], incoming: int, known: Mapping[str, str], exported: str) -> Received:
    limits = export_limits()
    try:
        return export_receive(chunks, incoming, limits, known, exported)
    except ExportLimit as exc:
        most = getattr(limits, exc.limit_name, None)
        sentence = TOO_MANY_STEPS if exc.limit_name == "path_steps" else errors.ExportLimitPassed.message
        raise errors.ExportLimitPassed(
            f"{sentence} ({exc.limit_name}: {most})",
            details={"limit": exc.limit_name, "max": most, "path": exc.path},
        ) from exc


def export_limits() -> ExportLimits:
    """Return the limits of the settings."""
    env = settings.ENV
    return ExportLimits(
        bytes=env.page_max_bytes,
        files=env.page_max_files,
        file_bytes=env.page_file_max_bytes,
        path_bytes=env.page_path_max_bytes,
    )


class _ExportEnded(Exception):
    """Signal that the archive is complete, and the guest's program goes on."""


class _ExportLook:
    """Check that is called with each chunk, and each second without one.

    It raises ClaimLost once this process does not own the deploy, and VmNotRunning or NotFound if the machine has
    ended. An export that takes long gives up its place. Past the deploy's deadline the claim is taken, which ends the
    export.
    """

    def __init__(self, deploy: PageDeploy, lost: threading.Event) -> None:
        self._deploy = deploy
        self._lost = lost
        self._machine_look = MachineLook(deploy.workspace_id)
        self._slow_at = time.monotonic() + SLOW_SECONDS
        self._ends_at = math.inf

    def end_soon(self) -> None:
        """Raise _ExportEnded from now on, after a moment."""
        self._ends_at = time.monotonic() + AFTER_END_SECONDS

    def __call__(self) -> None:
        if self._lost.is_set():
            raise ClaimLost(self._deploy.pk)
        if time.monotonic() > self._ends_at:
            raise _ExportEnded
        self._machine_look()
        if self._deploy.step != places.SLOW_EXPORT and time.monotonic() > self._slow_at:
            self._leave_place()

    def _leave_place(self) -> None:
        try:
            queue.place_leave(self._deploy)
        except DatabaseError as exc:
            logger.warning("%s could not give up its place and keeps it for now: %s", self._deploy.pk, exc)
            self._slow_at += SLOW_SECONDS


def _looked_at(chunks: Iterator[bytes], look: Callable[[], None]) -> Generator[bytes, None, None]:
    """Yield the chunks; no connection to the database is held between them."""
    release_connection()
    try:
        for chunk in chunks:
            look()
            yield chunk
    except PathInvalid as exc:
        raise PathNotFound(exc.message) from exc  # something is at the path, but not a folder
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()


@transaction.atomic
def _reserve_release(deploy: PageDeploy, added: int) -> int:
    """Count the bytes that the release adds to those that the account keeps, and return a new number.

    The account's lock ensures that two simultaneous deploys do not both take the last of the limit.
    """
    account = account_lock(deploy.page.account)
    require_kept_bytes(account, added, besides=deploy)
    page = lock_page(deploy.page)
    queue.write_facts(deploy, step="publish", reserved_bytes=added)
    write_page(page, last_release=page.last_release + 1)
    return page.last_release


@transaction.atomic
def _record_release(deploy: PageDeploy, number: int, files: int, size: int, skipped: tuple[list[Skipped], int]) -> None:
    """Write the release's row. After this commit the release will become live, whatever process dies."""
    page = lock_page(deploy.page)
    queue.write_facts(deploy, step="activate", release=number)
    made = PageRelease.objects.create(
        page=page,
        number=number,
        files=files,
        bytes=size,
        skipped=[{"path": entry.path, "reason": entry.reason} for entry in skipped[0]],
        skipped_count=skipped[1],
        source_workspace_id=deploy.workspace_id,
        exported_path=deploy.path,
        actor=deploy.actor,
    )
    write_live_release(page, made)


def release_activate(deploy: PageDeploy) -> None:
    """Make the release live, remove the oldest ones beyond the limit, and end the deploy."""
    publication.apply_publication(deploy.page_id)
    kept = _trim_releases(deploy.page)
    release_connection()
    store = publication.page_store()
    store.trim_releases(deploy.page_id, kept)
    size = store.page_bytes(deploy.page_id)
    deploy_succeeded(deploy, kept_bytes=size)


@transaction.atomic
def _trim_releases(page: Page) -> set[int]:
    """Delete the rows of the oldest releases; return the numbers of those that stay.

    Rows are deleted before files: a release that a row names exists. The files follow these numbers and count nothing
    themselves, because an attempt that died may have left a release without a row.
    """
    stored = lock_page(page)
    numbers = list(PageRelease.objects.filter(page=stored).order_by("-number").values_list("number", flat=True))
    old = set(numbers[settings.ENV.page_releases :]) - {stored.release}
    PageRelease.objects.filter(page=stored, number__in=old).delete()
    return set(numbers) - old
