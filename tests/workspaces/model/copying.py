"""Histories in which snapshots are used: restores, creates and forks."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from common.errors import DomainError
from tests.workspaces.model.copies import DEATHS, MEMORY, Copies, has_kept, has_room, which, which_kept
from tests.workspaces.model.expected import PAUSED, RUNNING, STOPPED, Expected
from tests.workspaces.model.keeping import failed_copy
from tests.workspaces.model.kept import (
    UNAVAILABLE,
    KeptSnapshot,
    create_refused,
    restore_ended,
    restore_refused,
    state_refused,
)
from vmbackend.errors import CopyUnproven
from workspaces.models import Workspace
from workspaces.quota import Amount, account_usage
from workspaces.snapshots.services import workspace_restore

SIZES = st.sampled_from([{}, {}, {"memory_mb": 128}, {"memory_mb": 256}, {"disk_size_mb": 64}, {"disk_size_mb": 256}])
COUNTS = st.integers(1, 3)


class Copying(Copies):
    """The calls of owners that make something of snapshots."""

    # Restores

    @has_kept
    @rule(
        number=which, other=which_kept, by=st.sampled_from(["id", "name", "default"]), memory=MEMORY, dies=DEATHS,
        deleted=st.booleans(),
    )  # fmt: skip
    def restore(self, number: int, other: int, by: str, memory: bool | None, dies: int, deleted: bool) -> None:
        """With `deleted` the snapshot is deleted while the restore is queued, which goes on."""
        if not (found := self.pick(number)):
            return
        key, expected = found
        named, kept = self.pick_kept(other) if by != "default" else self.newest(key)
        if kept and by == "name":
            named, kept = self.pick_named(kept.name)
        name = None if by == "default" else kept.name if kept and by == "name" else named
        refused = restore_refused(expected, key, kept, memory)
        deleted = deleted and dies > 0 and refused is None
        answer = self.restored(key, name, memory, dies, named if deleted else "")
        if not self.is_refused(answer, refused) and kept is not None:
            restore_ended(expected, kept, memory=kept.has_memory(memory))
            expected.source = named
        if deleted:
            self.forget(named)

    def newest(self, key: str) -> tuple[str, KeptSnapshot | None]:
        found = [each for each, kept in self.kept.items() if kept.ready and kept.of == key]
        return (max(found), self.kept[max(found)]) if found else ("", None)

    def restored(
        self, key: str, name: str | None, memory: bool | None, dies: int, deleted: str
    ) -> tuple[int, dict[str, Any]]:
        """The request waits for its end, so that one during which vmhost dies is made of its service."""
        if not dies:
            return self.sent(f"/workspace/{key}/restore", {"snapshot": name, "memory": memory}, 0)
        self.host.hold_tasks()
        status, body = 200, {}
        try:
            workspace_restore(actor=self.actor(), workspace=self.row(key), identifier=name, memory=memory)
        except DomainError as exc:
            status, body = exc.status, {"code": exc.code}
        if deleted:
            assert self.api.delete(f"/snapshots/{deleted}").status_code == 200
        self.die_at(dies)
        self.host.release_tasks()
        self.settle_and_restart_machines(but=key)
        return status, body

    # Creates

    @has_kept
    @rule(other=which_kept, by_name=st.booleans(), memory=MEMORY, sizes=SIZES, dies=DEATHS, fails=st.booleans())
    def create(
        self, other: int, by_name: bool, memory: bool | None, sizes: dict[str, int], dies: int, fails: bool
    ) -> None:
        named, kept = self.pick_kept(other)
        if kept and by_name:
            named, kept = self.pick_named(kept.name)
        name = kept.name if kept and by_name else named
        refused = create_refused(kept, memory, sizes) or self.count_refused(1)
        has_memory = kept is not None and kept.has_memory(memory)
        if fails := fails and refused is None and has_memory and not dies:
            self.host.driver.fail_next("load", CopyUnproven("It did not answer."))
            refused = UNAVAILABLE
        body: dict[str, Any] = {"snapshot": name, "memory": memory, "config": {**sizes, "cmd": ["serve"]}}
        before = set(self.expected)
        answer = self.sent("/workspace", body, dies)
        if (self.is_refused(answer, refused) and not fails) or kept is None:
            return
        own = kept.amount
        amount = Amount(
            own.cpu_millis, sizes.get("memory_mb", own.memory_mb), sizes.get("disk_size_mb", own.disk_size_mb)
        )
        [made] = self.made_since(before)
        copy = self.add_copy(made, amount, disk=kept.disk, memory=kept.content if has_memory else "", source=named)
        if fails:
            failed_copy(copy, again=True)

    def made_since(self, before: set[str]) -> list[str]:
        return sorted(set(Workspace.objects.values_list("pk", flat=True)) - before)

    # Forks

    @rule(number=which, copies=COUNTS, memory=MEMORY, dies=DEATHS, fails=st.integers(0, 3))
    def fork(self, number: int, copies: int, memory: bool | None, dies: int, fails: int) -> None:
        if not (found := self.pick(number)):
            return
        key, expected = found
        refused = state_refused(expected, memory) or self.count_refused(copies)
        has_memory = expected.status != STOPPED if memory is None else memory
        fails = min(fails, copies) if refused is None and has_memory and not dies else 0
        if fails:
            self.host.driver.fail_next("load", CopyUnproven("It did not answer."), times=fails)
        before = set(self.expected)
        answer = self.sent(f"/workspace/{key}/fork", {"count": copies, "memory": memory}, min(dies, 2))
        if self.is_refused(answer, UNAVAILABLE if fails == copies else refused) and refused:
            return
        body = answer[1]
        entries = body["forks"] if body["success"] else body["details"]["forks"]
        self.are_forked(expected, entries, before, has_memory)
        assert sum("error" in entry for entry in entries) == fails
        assert len(entries) == copies

    def are_forked(self, parent: Expected, entries: list[Any], before: set[str], has_memory: bool) -> None:
        ids = [
            entry["workspace"]["id"] if "workspace" in entry else entry["error"]["details"]["id"] for entry in entries
        ]
        assert sorted(ids) == self.made_since(before)
        for entry, made in zip(entries, ids, strict=True):
            memory = (parent.memory or "") if has_memory else ""
            copy = self.add_copy(made, parent.applied, disk=parent.disk, memory=memory, source=None)
            if "error" in entry:
                failed_copy(copy, again=False)

    # Limits

    @has_room
    @rule(number=which, copies=COUNTS)
    def the_plan_has_no_room(self, number: int, copies: int) -> None:
        """One less than is needed of a limit refuses all, and nothing is written."""
        found = self.pick(number, [RUNNING, PAUSED])
        if not found or self.count_refused(copies):
            return
        key, expected = found
        used, path = account_usage(self.account), f"/workspace/{key}"
        short = expected.applied.memory_mb * copies - 1
        pool, running = used.owned.memory_mb + short, used.running.memory_mb + short
        body = {"count": copies}
        self.refused_by_plan((402, "POOL_LIMIT_REACHED"), f"{path}/fork", body, pool_memory_mb=pool)
        self.refused_by_plan((402, "RUNNING_POOL_REACHED"), f"{path}/fork", body, running_memory_mb=running)
        if not self.number_refused():
            # Its memory at least: how much of the disk counts depends on when that was last measured.
            pool = used.owned.disk_size_mb + expected.applied.memory_mb - 1
            self.refused_by_plan((402, "POOL_LIMIT_REACHED"), f"{path}/snapshot", {}, pool_disk_size_mb=pool)
