"""Random histories of files and limits beside a model of plain dicts, which imports nothing of the product's rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from accounts.models import Account
from accounts.services import account_create
from cdn import pools
from cdn.errors import CdnQuotaExceeded, RestoreWithoutRoom, UploadLost, UploadUnknown
from cdn.models import File, Permit, PlanLimits, Pool
from cdn.services import files, processing, sweeps, uploads
from cdn.services.counter_check import account_check
from cdn.services.limits import namespace_quota_set
from cdn.services.permits import IssuedPermit
from credits.models import Balance, Hold
from namespaces.models import Namespace
from tests.cdn.history_bytes import bytes_found, part_write, removals_run, stored_write
from tests.cdn.rows import SHA, facts_of, make_permit, variant_facts

PLACES = ("first", "second", "")
SIZES = st.integers(0, 60)
LIMITS = st.one_of(st.none(), st.integers(0, 300))
EXPIRED = "2000-01-01T00:00:00Z"


@dataclass
class Expected:
    """One file, as the model has it."""

    place: str
    size: int
    state: str = "open"
    footprint: int = 0
    part: int | None = None

    @property
    def bytes(self) -> int:
        return self.footprint if self.state in {"active", "trashed"} else self.size


class FileHistory(RuleBasedStateMachine):
    """Two namespaces and files without one, of one account."""

    def __init__(self) -> None:
        super().__init__()
        self.expected: dict[str, Expected] = {}
        self.issued: dict[str, IssuedPermit] = {}
        self.ever: set[str] = set()
        self.month = 0
        self.published: dict[str, list[int]] = {place: [0, 0] for place in (*PLACES, "all")}
        self.limits: dict[str, dict[str, int | None]] = {place: {} for place in PLACES}
        self.ceiling: dict[str, int] = {"bytes": 400, "monthly": 600, "files": 8}

    @initialize()
    def account(self) -> None:
        """With a plan that is soon full."""
        self.owner: Account = account_create(name="history", plan="pro")[0]
        self.spaces: dict[str, Namespace | None] = {"": None}
        for place in PLACES[:2]:
            self.spaces[place] = Namespace.objects.create(account=self.owner, name=place, slug=place)
        self.turn_month(0)
        self.set_plan(400, 600)

    def turn_month(self, number: int) -> None:
        self.month = number
        pools.month_of = lambda moment=None: f"2030-{number + 1:02}"  # type: ignore[misc]

    def set_plan(self, most: int, monthly: int) -> None:
        self.ceiling |= {"bytes": most, "monthly": monthly}
        policy = {"maxFiles": self.ceiling["files"]}
        PlanLimits.objects.filter(pk="pro").update(max_bytes=most, monthly_bytes=monthly, policy=policy)

    # What the model says.

    def used(self, place: str, *states: str) -> tuple[int, int]:
        """Bytes and files in these states."""
        found = [each for each in self.expected.values() if each.state in states and place in (each.place, "all")]
        return sum(each.bytes for each in found), len(found)

    def has_room(self, place: str, asked: int, *, extra_files: int, monthly: bool, reserved: bool = True) -> bool:
        """Within the namespace's limits and the account's."""
        counted = ("open", "received", "active", "trashed") if reserved else ("active", "trashed")
        for where, limits in ((place, self.limits[place] if place else {}), ("all", self.ceiling)):
            stored, number = self.used(where, *counted)
            pending = self.used(where, "open", "received")[0] if reserved else 0
            most, month = limits.get("bytes"), limits.get("monthly")
            if most is not None and stored + asked > min(most, self.ceiling["bytes"]):
                return False
            if monthly and month is not None and self.published[where][0] + pending + asked > month:
                return False
            if number + extra_files > self.ceiling["files"]:
                return False
        return True

    def in_state(self, *states: str) -> list[str]:
        return [key for key, each in self.expected.items() if each.state in states]

    # What is done.

    @rule(place=st.sampled_from(PLACES), size=SIZES)
    def permit(self, place: str, size: int) -> None:
        """Asks for room; refused exactly where the model has none."""
        fits = self.has_room(place, size, extra_files=1, monthly=True)
        try:
            issued = make_permit(self.owner, self.spaces[place], size=size)
        except CdnQuotaExceeded:
            assert not fits
            return
        assert fits
        made = self.expected[issued.file.pk] = Expected(place, size)
        if not size:
            made.state = "received"
        self.ever.add(issued.file.pk)
        self.issued[issued.file.pk] = issued

    @precondition(lambda self: self.in_state("open"))
    @rule(data=st.data(), how=st.sampled_from(["whole", "short", "cut", "killed", "lost"]))
    def upload(self, data: st.DataObject, how: str) -> None:
        """`cut`: the client breaks off. `killed`: the process dies with the lease. `lost`: it expires in between."""
        key = data.draw(st.sampled_from(self.in_state("open")))
        known = self.expected[key]
        Permit.objects.filter(pk=key, state="receiving").update(lease_until=EXPIRED)
        grant = uploads.upload_begin(self.issued[key].token, length=None, offset=None, owner="a")
        known.part = known.size if how == "whole" else known.size // 2
        part_write(key, known.part)
        if how == "cut":
            uploads.upload_progress(grant, known.size // 2)
            uploads.upload_pause(grant, known.size // 2)
        elif how == "lost":
            Permit.objects.filter(pk=key).update(expires_at=EXPIRED)
            self.expire()
            self.require_lost(grant)
        elif how != "killed":
            received = known.size if how == "whole" else known.size // 2
            uploads.upload_complete(grant, received, SHA)
            known.state = "received"

    def require_lost(self, grant: uploads.UploadGrant) -> None:
        for step in (lambda: uploads.upload_progress(grant, 0), lambda: uploads.upload_complete(grant, 0, SHA)):
            try:
                step()
            except UploadLost:
                continue
            raise AssertionError("an upload went on after its end")

    @rule()
    def expire(self) -> None:
        """The sweep finds what is due, once."""
        due = Permit.objects.filter(state__in=["open", "receiving"], expires_at__lte="2020-01-01T00:00:00Z")
        keys = list(due.values_list("pk", flat=True))
        assert sweeps.permits_expire() == len(keys)
        assert sweeps.permits_expire() == 0
        for key in keys:
            self.expected[key].state = "rejected"

    @precondition(lambda self: self.in_state("open"))
    @rule(data=st.data())
    def time_out(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.in_state("open")))
        Permit.objects.filter(pk=key).update(expires_at=EXPIRED)
        self.expire()
        try:
            uploads.upload_begin(self.issued[key].token, length=None, offset=None, owner="a")
        except UploadUnknown:
            return
        raise AssertionError("a permit that ended took bytes")

    @precondition(lambda self: self.in_state("received"))
    @rule(data=st.data(), extra=st.integers(0, 40), dies=st.booleans())
    def publish(self, data: st.DataObject, extra: int, dies: bool) -> None:
        """With a variant of `extra` bytes, for which no room was reserved. `dies`: the first process did."""
        key = data.draw(st.sampled_from(self.in_state("received")))
        known = self.expected[key]
        if dies:
            assert processing.processing_claim(key) is not None
            assert processing.processing_claim(key) is None
            File.objects.filter(pk=key).update(lease_until=EXPIRED)
        claim = processing.processing_claim(key)
        assert claim is not None
        size = File.objects.get(pk=key).size
        footprint = size + extra
        # What was reserved is its own: only more than that competes with what others have reserved.
        competes = footprint > known.size
        stored_write(key, size, extra)
        known.part = None
        asked = footprint - known.size if competes else footprint
        fits = self.has_room(known.place, asked, extra_files=0 if competes else 1, monthly=True, reserved=competes)
        made = processing.processing_publish(claim, facts_of(claim_file(claim)), [variant_facts("v", extra)])
        assert (made.status == "active") == fits, made.error
        known.state = "active" if fits else "rejected"
        if fits:
            known.footprint = footprint
            for where in (known.place, "all"):
                self.published[where][0] += footprint
                self.published[where][1] += 1

    @precondition(lambda self: self.in_state("open", "received", "active", "trashed"))
    @rule(data=st.data())
    def trash(self, data: st.DataObject) -> None:
        """Of what is not published: cancels it."""
        key = data.draw(st.sampled_from(self.in_state("open", "received", "active", "trashed")))
        files.file_trash(file=File.objects.get(pk=key), actor="test")
        known = self.expected[key]
        known.state = "trashed" if known.state in ("active", "trashed") else "rejected"

    @precondition(lambda self: self.in_state("trashed"))
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.in_state("trashed")))
        fits = self.has_room(self.expected[key].place, 0, extra_files=0, monthly=False)
        try:
            files.file_restore(file=File.objects.get(pk=key), actor="test")
        except RestoreWithoutRoom:
            assert not fits
            return
        assert fits
        self.expected[key].state = "active"

    @rule(place=st.sampled_from(PLACES))
    def purge(self, place: str) -> None:
        space = self.spaces[place]
        count, ended = files.trash_purge(account=self.owner, within=Q(namespace=space), actor="test")
        gone = [key for key in self.in_state("trashed") if self.expected[key].place == place]
        assert (count, ended) == (len(gone), True)
        for key in gone:
            del self.expected[key]

    @rule()
    def prune(self) -> None:
        """A day after they were rejected."""
        File.objects.filter(account=self.owner, status="rejected").update(rejected_at=EXPIRED)
        gone = self.in_state("rejected")
        assert sweeps.rejected_prune() == len(gone)
        for key in gone:
            del self.expected[key]

    @rule(place=st.sampled_from(PLACES[:2]), most=LIMITS, monthly=LIMITS)
    def quota(self, place: str, most: int | None, monthly: int | None) -> None:
        space = self.spaces[place]
        assert space is not None
        changes = {"cdn_max_bytes": most, "cdn_monthly_bytes": monthly}
        namespace_quota_set(namespace=space, changes=changes, actor="test")
        self.limits[place] = {"bytes": most, "monthly": monthly}

    @rule(most=st.integers(50, 500), monthly=st.integers(50, 800))
    def plan(self, most: int, monthly: int) -> None:
        self.set_plan(most, monthly)

    @precondition(lambda self: self.month < 11)
    @rule()
    def next_month(self) -> None:
        self.turn_month(self.month + 1)
        self.published = {place: [0, 0] for place in self.published}

    # What must hold after each step: called by the test's machine.

    def check(self) -> None:
        """Counters, rows and the model are equal."""
        assert account_check(self.owner.pk) == []
        for place in (*PLACES, "all"):
            self.require_pool(place)
        shown = {"open": "uploading", "received": "processing"}
        rows = dict(File.objects.filter(account=self.owner).values_list("pk", "status"))
        assert rows == {key: shown.get(each.state, each.state) for key, each in self.expected.items()}
        self.require_holds()
        self.require_bytes()

    def require_bytes(self) -> None:
        """Those of published files are stored, those of unfinished uploads are in parts, and no others are there."""
        removals_run()
        stored, parts = bytes_found(self.ever)
        assert stored == {key: self.expected[key].footprint for key in self.in_state("active", "trashed")}
        begun = {key: self.expected[key].part for key in self.in_state("open", "received")}
        assert parts == {key: size for key, size in begun.items() if size is not None}

    def require_pool(self, place: str) -> None:
        key = self.owner.pk if place == "all" else self.pool_key(place)
        pool = pools.rolled(Pool.objects.filter(pk=key).first() or Pool(owner=key))
        assert (pool.stored_bytes, pool.stored_files) == self.used(place, "active")
        assert (pool.trashed_bytes, pool.trashed_files) == self.used(place, "trashed")
        assert (pool.reserved_bytes, pool.reserved_files) == self.used(place, "open", "received")
        assert [pool.month_bytes, pool.month_files] == self.published[place]
        assert pool.open_permits == self.used(place, "open")[1]

    def pool_key(self, place: str) -> str:
        space = self.spaces[place]
        return pools.personal_key(self.owner.pk) if space is None else space.pk

    def require_holds(self) -> None:
        """One for each upload that is not published, and what is held is their sum."""
        keys = set(Hold.objects.filter(balance__account_id=self.owner.pk).values_list("key", flat=True))
        assert keys == {f"cdn:{key}" for key in self.in_state("open", "received")}
        for balance in Balance.objects.filter(account_id=self.owner.pk):
            assert balance.held == sum(hold.amount for hold in balance.holds.all())


def claim_file(claim: processing.ClaimedFile) -> Any:
    return File.objects.get(pk=claim.file_id)
