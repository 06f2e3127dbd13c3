"""Random histories of workspaces with snapshots, restores and forks, each call compared with what it should answer."""

from __future__ import annotations

import time
from datetime import timedelta
from itertools import count
from typing import Any

from django.db.models import F
from django.utils import timezone
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.workspaces.model.expected import RUNNING, STOPPED, UP, Expected
from tests.workspaces.model.keeping import MOST_WORKSPACES, Keeping
from tests.workspaces.model.kept import (
    BAD_INPUT,
    IN_PROGRESS,
    NAME_TAKEN,
    NOT_FOUND,
    UNAVAILABLE,
    Answer,
    KeptSnapshot,
    snapshot_ended,
    state_refused,
)
from vmbackend.copies import Difference
from vmbackend.errors import CapacityExceeded
from workspaces.charging.snapshots import charge_due_snapshots
from workspaces.crud.services import workspace_delete
from workspaces.host.sweep import sweep_due
from workspaces.models import Snapshot

which = st.integers(0, MOST_WORKSPACES - 1)
which_kept = st.integers(0, 4)
MEMORY = st.sampled_from([None, None, None, True, False])
AFTER = st.sampled_from(["resume", "resume", "paused", "stop"])
NAMES = st.sampled_from(["", "", "one", "two"])
DEATHS = st.sampled_from([0, 0, 1, 2, 3, 4, 5, 6, 7])
DIFFERENCE = Difference("QEMU", "7.2", "10.0")
has_room = precondition(lambda self: len(self.expected) < MOST_WORKSPACES)
has_kept = precondition(lambda self: self.kept)
numbers = count(1)
WRONG = [
    ("snapshot", {"name": ""}),
    ("snapshot", {"name": "a\nb"}),
    ("snapshot", {"after": "destroy"}),
    ("snapshot", {"memory": 1}),
    ("snapshot", {"ttl": 0}),
    ("restore", {"memory": "yes"}),
    ("fork", {"count": 0}),
    ("fork", {"count": 17}),
    ("fork", {"count": "2"}),
    ("fork", {"mode": "permanent", "ttl": 60}),
]


class Copies(Keeping):
    """The calls of owners about snapshots, and the events meanwhile."""

    charged_at = 0.0  # when the last hour ended, monotonic

    @rule(number=which)
    def write(self, number: int) -> None:
        if found := self.pick(number, [RUNNING]):
            key, expected = found
            text = f"text {next(numbers)}"
            (self.folder(key) / "note").write_text(text)
            self.host.driver.set_memory(key, text)
            expected.disk = expected.memory = text

    # Snapshots

    @rule(number=which, name=NAMES, after=AFTER, memory=MEMORY, dies=DEATHS, again=st.booleans())
    def keep(self, number: int, name: str, after: str, memory: bool | None, dies: int, again: bool) -> None:
        if not (found := self.pick(number)):
            return
        key, expected = found
        body: dict[str, Any] = {"after": after, "memory": memory, "idempotency_key": f"key {next(numbers)}"}
        body |= {"name": name} if name else {}
        path = f"/workspace/{key}/snapshot"
        refused = state_refused(expected, memory) or self.name_refused(name) or self.number_refused()
        answer = self.sent(path, body, dies)
        if self.is_refused(answer, refused):
            return
        self.is_kept(key, expected, answer[1]["snapshot"]["id"], memory)
        snapshot_ended(expected, after)
        if again:
            self.is_replayed(path, body, answer[1]["snapshot"]["id"])

    def is_kept(self, key: str, expected: Expected, made: str, memory: bool | None) -> None:
        has_memory = expected.status != STOPPED if memory is None else memory
        row = Snapshot.objects.get(pk=made)
        parent = expected.source if expected.source in self.kept else None
        kept = KeptSnapshot(row.name, key, has_memory, expected.applied, disk=expected.disk, parent=parent)
        kept.content, kept.pool_mb = (expected.memory or "") if has_memory else "", row.pool_mb
        assert kept.pool_mb == -(-row.size_bytes >> 20) >= (kept.amount.memory_mb if has_memory else 0)
        self.kept[made] = kept

    def is_replayed(self, path: str, body: dict[str, Any], made: str) -> None:
        answer = self.api.post(path, body)
        assert (answer.status_code, answer.headers["Idempotent-Replay"]) == (200, "true")
        assert answer.json()["snapshot"]["id"] == made
        other = self.api.post(path, {**body, "ttl": 60})
        assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")

    def name_refused(self, name: str, but: str = "") -> Answer | None:
        taken = any(kept.ready and kept.name == name for key, kept in self.kept.items() if key != but)
        return NAME_TAKEN if name and taken else None

    @rule(number=which, after=AFTER, name=NAMES)
    def host_has_no_room_for_a_snapshot(self, number: int, after: str, name: str) -> None:
        found = self.pick(number)
        if not found or state_refused(found[1], None) or self.name_refused(name) or self.number_refused():
            return
        key, expected = found
        self.host.driver.fail_next("snapshot", CapacityExceeded("It is full."))
        answer = self.sent(f"/workspace/{key}/snapshot", {"after": after, **({"name": name} if name else {})}, 0)
        self.is_refused(answer, UNAVAILABLE)
        row = Snapshot.objects.order_by("pk").last()
        assert row is not None
        assert (row.status, row.error_code, row.pk in self.kept) == ("failed", "no_room", False)
        parent = expected.source if expected.source in self.kept else None
        self.kept[row.pk] = KeptSnapshot(
            row.name, key, expected.status != STOPPED, expected.applied, False, parent=parent
        )

    @rule(number=which, what=st.sampled_from(["exit 0", "exit 1", "kill", "panic"]), after=AFTER)
    def ends_before_it_is_kept(self, number: int, what: str, after: str) -> None:
        """The machine ends by itself after the request: its disk is kept, as memory there is none; unless the workspace
        is removed with its machine, and its snapshots with it.
        """
        found = self.pick(number, UP)
        if not found or self.number_refused():
            return
        key, expected = found
        self.host.hold_tasks()
        answer = self.api.post(f"/workspace/{key}/snapshot", {"after": after, "wait_ready": False})
        assert answer.status_code == 202, answer.json()
        name, _, code = what.partition(" ")
        getattr(self.host.driver, name)(key, *([int(code)] if code else []))
        self.host.release_tasks()
        self.settle_and_restart_machines(but=key)
        expected.memory = ""
        if after != "stop":
            expected.machine_ended(failure=what != "exit 0")
        if expected.status is not None:
            self.is_kept(key, expected, answer.json()["snapshot"]["id"], False)
        if after == "stop":
            snapshot_ended(expected, after)

    @rule(number=which, after=AFTER)
    def is_deleted_while_it_is_made(self, number: int, after: str) -> None:
        """Nothing was done then. One operation at a time."""
        found = self.pick(number)
        if not found or state_refused(found[1], None) or self.number_refused():
            return
        key, _ = found
        self.host.hold_tasks()
        answer = self.api.post(f"/workspace/{key}/snapshot", {"after": after, "wait_ready": False})
        assert answer.status_code == 202, answer.json()
        for route, body in (("snapshot", {}), ("fork", {}), ("restore", {"snapshot": answer.json()["snapshot"]["id"]})):
            other = self.api.post(f"/workspace/{key}/{route}", body)
            assert (other.status_code, other.json()["code"]) == IN_PROGRESS, (route, other.json())
        assert self.api.delete(f"/snapshots/{answer.json()['snapshot']['id']}").status_code == 200
        self.host.release_tasks()
        self.settle_and_restart_machines(but=key)

    @rule(number=which, keep=st.booleans(), kept_before=st.booleans())
    def workspace_is_deleted(self, number: int, keep: bool, kept_before: bool) -> None:
        """Its snapshots go with it or stay; one that is not complete has failed."""
        if not (found := self.pick(number)):
            return
        key, expected = found
        making = kept_before and not (state_refused(expected, None) or self.number_refused())
        self.host.hold_tasks()
        if making:
            made = self.api.post(f"/workspace/{key}/snapshot", {"wait_ready": False}).json()["snapshot"]
            parent = expected.source if expected.source in self.kept else None
            kept = KeptSnapshot(made["name"], key, expected.status != STOPPED, expected.applied, False, parent=parent)
            self.kept[made["id"]] = kept
        workspace_delete(workspace=self.row(key), actor="owner", keep_snapshots=keep)
        self.host.release_tasks()
        self.settle_and_restart_machines(but=key)
        expected.status = None
        for kept in self.kept.values():
            if keep and kept.of == key:
                kept.of = None

    @rule(other=which_kept, name=NAMES)
    def rename(self, other: int, name: str) -> None:
        key, kept = self.pick_kept(other)
        refused = (BAD_INPUT if not name else None) or (self.name_refused(name, key) if kept and kept.ready else None)
        refused = NOT_FOUND if kept is None else refused
        answer = self.api.send("PATCH", f"/snapshots/{key}", {"name": name})
        if not self.is_refused((answer.status_code, answer.json()), refused) and kept is not None:
            assert answer.json()["snapshot"]["name"] == name
            kept.name = name

    @rule(other=which_kept)
    def delete_snapshot(self, other: int) -> None:
        key, kept = self.pick_kept(other)
        answer = self.api.delete(f"/snapshots/{key}")
        self.is_refused((answer.status_code, answer.json()), None if kept else NOT_FOUND)
        self.settle_and_restart_machines()
        if kept:
            self.forget(key)
        assert self.api.get(f"/snapshots/{key}").status_code == 404

    @has_kept
    @rule(other=which_kept)
    def expire(self, other: int) -> None:
        key, kept = self.pick_kept(other)
        if kept:
            answer = self.api.send("PATCH", f"/snapshots/{key}", {"ttl": 60})
            assert answer.json()["snapshot"]["expires_at"] is not None
            Snapshot.objects.filter(pk=key).update(expires_at=timezone.now())
            sweep_due()
            self.settle_and_restart_machines()
            self.forget(key)

    @has_kept
    @rule(other=which_kept, lost=st.booleans())
    def host_has_changed(self, other: int, lost: bool) -> None:
        """Its memory does not fit any more, or fits again; or its files are gone."""
        key, kept = self.pick_kept(other)
        if not kept or not kept.ready or not (lost or kept.memory):
            return
        if lost:
            self.host.driver.remove_snapshot(key)
            kept.ready, kept.pool_mb, kept.fits = False, 0, kept.fits
        else:
            self.host.driver.set_differences(key, *([DIFFERENCE] if kept.fits else []))
            kept.fits = not kept.fits
        self.host.restart()
        self.settle_and_restart_machines()

    @has_kept
    @rule()
    def an_hour_passes(self) -> None:
        ready = sum(kept.ready for kept in self.kept.values())
        # The key of a charge has the second of its end, so hours of one snapshot end a second apart.
        time.sleep(max(0.0, self.charged_at + 1 - time.monotonic()))
        self.charged_at = time.monotonic()
        Snapshot.objects.update(charged_until=F("charged_until") - timedelta(hours=1))
        assert charge_due_snapshots() == ready

    @has_kept
    @rule(other=which_kept, by_name=st.booleans())
    def is_not_a_strangers(self, other: int, by_name: bool) -> None:
        key, kept = self.pick_kept(other)
        named = kept.name if kept and by_name else key
        calls = [("GET", f"/snapshots/{key}", None), ("PATCH", f"/snapshots/{key}", {"name": "mine"})]
        calls += [("DELETE", f"/snapshots/{key}", None), ("POST", "/workspace", {"snapshot": named})]
        for method, path, body in calls:
            answer = self.stranger.send(method, path, body)
            assert (answer.status_code, answer.json()["code"]) == NOT_FOUND, (method, path, answer.json())
        assert self.stranger.get("/snapshots").json()["total"] == 0

    @rule(number=which, wrong=st.sampled_from(WRONG))
    def wrong_input_changes_nothing(self, number: int, wrong: tuple[str, dict[str, Any]]) -> None:
        if found := self.pick(number):
            before = self.written()
            answer = self.api.post(f"/workspace/{found[0]}/{wrong[0]}", wrong[1])
            assert (answer.status_code, answer.json()["code"], self.written()) == (*BAD_INPUT, before), answer.json()
