"""Checks of snapshots after every step, and the calls with which histories make and use them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hypothesis.stateful import invariant

from accounts.actors import Actor
from accounts.models import Plan
from accounts.scopes import Scope
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.model.expected import PAUSED, RUNNING, SLEEPING, Expected
from tests.workspaces.model.history import History
from tests.workspaces.model.kept import WITH_STATE, Answer, KeptSnapshot
from workspaces.models import Operation, Snapshot, Workspace
from workspaces.models.operation import LIVE
from workspaces.models.workspace import Mode, RestartPolicy, TtlAction
from workspaces.quota import Amount, account_usage
from workspaces.states import Status

MOST_WORKSPACES, MOST_SNAPSHOTS = 6, 4
UNKNOWN = "snap_2222222222222222"
# What the list of snapshots shows of their rows, besides when they were made and last used.
SHOWN_OF_ROWS = (
    "pk", "charged_until", "name", "workspace_id", "parent_id", "memory", "status", "error_code", "differs",
    "cpu_millis", "memory_mb", "disk_size_mb", "pool_mb", "size_bytes", "purpose", "deleted_at", "expires_at",
)  # fmt: skip
Found = tuple[str, Expected]


class Keeping(History):
    """Requests are those of the API, of an account whose plan allows few workspaces and snapshots."""

    def __init__(self, host: FakeHost, api: Caller, stranger: Caller) -> None:
        super().__init__(host, api.account)
        self.api, self.stranger = api, stranger
        self.kept: dict[str, KeptSnapshot] = {}
        self.shown = ""
        Plan.objects.update(max_workspaces=MOST_WORKSPACES, max_snapshots=MOST_SNAPSHOTS)

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self.nothing_is_left_after_all_is_deleted()
        finally:
            self.host.driver.clear_failures()
            self.host.settle()
            for key in self.host.driver.inventory().snapshots:
                self.host.driver.remove_snapshot(key)
            Snapshot.objects.all().delete()
            super().teardown()

    # Helpers

    def pick_kept(self, number: int) -> tuple[str, KeptSnapshot | None]:
        """One of the snapshots that are shown, or an id that there is not."""
        keys = [UNKNOWN, *self.kept]
        key = keys[number % len(keys)]
        return key, self.kept.get(key)

    def pick_named(self, name: str) -> tuple[str, KeptSnapshot]:
        """The one that a name means: that which holds it, else the newest that failed under it."""
        return max(((key, kept) for key, kept in self.kept.items() if kept.name == name), key=_precedence)

    def folder(self, key: str) -> Path:
        return Path(self.host.driver._store.directory(key)) / "disk"

    def sent(self, path: str, body: dict[str, Any], dies: int) -> tuple[int, dict[str, Any]]:
        """Send a request and wait until what it queued has ended. If vmhost dies meanwhile, the request does not wait
        for it. Until then a stopped workspace is stopped: vmhost's start may plan its restart as that of any other.
        """
        if dies:
            body = {**body, "wait_ready": False}
            self.host.hold_tasks()
        answer = self.api.post(path, body)
        self.die_at(dies)
        self.host.release_tasks()
        self.settle_and_restart_machines()
        return answer.status_code, answer.json()

    def is_refused(self, answer: tuple[int, dict[str, Any]], refused: Answer | None) -> bool:
        status, body = answer
        if refused is None:
            assert status in (200, 201, 202), body
            return False
        assert (status, body["code"]) == refused, body
        return True

    def actor(self) -> Actor:
        return Actor(self.account, Scope.ACCOUNT, credential_id="", label="owner")

    def number_refused(self) -> Answer | None:
        ready = sum(kept.ready for kept in self.kept.values())
        return (402, "SNAPSHOT_LIMIT_REACHED") if ready >= MOST_SNAPSHOTS else None

    def count_refused(self, more: int) -> Answer | None:
        self.forget_deleted()
        too_many = len(self.expected) + more > MOST_WORKSPACES
        return (402, "SANDBOX_LIMIT_REACHED") if too_many else None

    def refused_by_plan(self, refused: Answer, path: str, body: dict[str, Any], **limits: int) -> None:
        """Refused with these limits, and nothing is written."""
        counts = self.written()
        allowed = Plan.objects.get(pk=self.account.plan_id)
        before = {name: getattr(allowed, name) for name in limits}
        Plan.objects.filter(pk=allowed.pk).update(**limits)
        answer = self.api.post(path, body)
        Plan.objects.filter(pk=allowed.pk).update(**before)
        assert (answer.status_code, answer.json()["code"]) == refused, answer.json()
        assert self.written() == counts

    def written(self) -> tuple[int, int, int]:
        return Workspace.objects.count(), Snapshot.objects.count(), Operation.objects.count()

    def add_copy(self, key: str, amount: Amount, *, disk: str, memory: str, source: str | None) -> Expected:
        """A new workspace by create or fork: it runs, and is temporary."""
        row = self.row(key)
        assert (row.mode, row.ttl_action, row.restart_policy) == (Mode.TEMPORARY, TtlAction.STOP, RestartPolicy.NO)
        copy = Expected(wanted=amount, applied=amount, disk=disk, memory=memory, source=source)
        self.expected[key] = copy
        return copy

    def forget_deleted(self) -> None:
        """The snapshots of a workspace go with it, unless they were kept."""
        living = {key for key, expected in self.expected.items() if expected.status is not None}
        for key in [key for key, kept in self.kept.items() if kept.of is not None and kept.of not in living]:
            self.forget(key)

    def forget(self, key: str) -> None:
        del self.kept[key]
        for kept in self.kept.values():
            kept.parent = None if kept.parent == key else kept.parent

    def kept_mb(self) -> int:
        self.forget_deleted()
        return sum(kept.pool_mb for kept in self.kept.values())

    # What is true after every step

    @invariant()
    def snapshots_are_as_expected(self) -> None:
        self.forget_deleted()
        assert self.host.driver.clear_failures() is None
        rows = list(Snapshot.objects.order_by("pk").values_list(*SHOWN_OF_ROWS))
        charged = {key: charged_until is not None for key, charged_until, *_ in rows}
        assert charged == {key: kept.ready for key, kept in self.kept.items()}
        copies = Workspace.objects.exclude(source_snapshot_id=None).order_by("pk")
        sources = list(copies.values_list("pk", "source_snapshot_id"))
        # The list shows rows: where neither they nor what is expected of them has changed, it is as it was.
        shown = repr((rows, sources, self.kept, [each.source for each in self.expected.values()]))
        if shown != self.shown:
            self.list_is_as_expected()
        self.shown = shown

    def list_is_as_expected(self) -> None:
        body = self.api.get("/snapshots?limit=100").json()
        assert body["total"] == len(self.kept)
        assert [each["id"] for each in body["snapshots"]] == sorted(self.kept, reverse=True)
        for shown in body["snapshots"]:
            key = shown["id"]
            assert self.kept_as(shown) == self.kept[key], key
            assert shown["usable"] == (self.kept[key].ready and self.kept[key].fits)
            assert shown["dependants"] == sum(each.source == key for each in self.expected.values())

    def kept_as(self, shown: dict[str, Any]) -> KeptSnapshot:
        """A snapshot as the API shows it."""
        mine, sizes = self.kept[shown["id"]], shown["resources"]
        assert shown["status"] == ("ready" if shown["error"] is None else "failed")
        return KeptSnapshot(
            name=shown["name"],
            of=shown["workspace_id"],
            memory=shown["memory"],
            amount=Amount(round(sizes["cpus"] * 1000), sizes["memory_mb"], sizes["disk_size_mb"]),
            ready=shown["status"] == "ready",
            fits=mine.fits,
            parent=shown["parent_id"],
            disk=mine.disk,
            content=mine.content,
        )

    @invariant()
    def workspaces_have_their_disk_and_memory(self) -> None:
        sources = dict(Workspace.objects.values_list("pk", "source_snapshot_id"))
        for key, expected in self.expected.items():
            if expected.status not in (RUNNING, PAUSED, SLEEPING):
                expected.memory = ""
            found = self.host.driver.memory_of(key)
            if expected.memory is None:
                expected.memory = found
            if expected.status in (RUNNING, PAUSED):
                assert found == expected.memory, (key, expected)
            note = self.folder(key) / "note"
            if expected.status in WITH_STATE:
                assert (note.read_text() if note.exists() else "") == expected.disk, (key, expected)
            assert expected.source is None or sources[key] == expected.source

    def nothing_is_left_after_all_is_deleted(self) -> None:
        self.kept_mb()
        for key in list(self.kept):
            assert self.api.delete(f"/snapshots/{key}").status_code == 200
        for key in list(self.expected):
            assert self.api.delete(f"/workspace/{key}").status_code == 200
        self.host.settle()
        inventory = self.host.driver.inventory()
        assert (inventory.ids(), inventory.snapshots) == (frozenset(), frozenset())
        assert not Snapshot.objects.exists()
        assert not Workspace.objects.exists()
        assert not Operation.objects.filter(state__in=LIVE).exists()
        used = account_usage(self.account)
        assert used.owned == used.running == Amount(0, 0, 0, 0)


def failed_copy(expected: Expected, *, again: bool) -> None:
    """Its creation failed; `again`: it can be tried again, as its snapshot is still there."""
    expected.status, expected.is_source_gone, expected.memory = Status.FAILED, not again, ""


def _precedence(found: tuple[str, KeptSnapshot]) -> tuple[bool, str]:
    key, kept = found
    return kept.ready, key
