"""Processes that are killed (SIGKILL) after any statement: all or nothing, and the next one does it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.core.management import call_command
from django.db.models import Q

from cdn.models import File, Permit, Pool
from cdn.services import files, processing, sweeps
from cdn.services.counter_check import account_check
from cdn.services.growth import SMALLEST_STEP
from cdn.storage import original_key, part_path, store_file
from credits.models import Balance, Entry, Hold
from namespaces.models import Namespace
from tests.callers import Caller
from tests.cdn import killed
from tests.cdn.rows import SHA, make_file, make_permit, upload
from tests.killed_process import killed_process

pytestmark = pytest.mark.django_db(transaction=True)
STATEMENTS = 60  # more than any of them has
EXPIRED = "2000-01-01T00:00:00Z"


def killed_at_each(name: str, prepare: Callable[[], dict[str, str]], check: Callable[[bool], None]) -> int:
    """Kill it at each statement; `check(ended)` is called after each. Returns how many there were."""
    with killed_process() as process:
        for statement in range(1, STATEMENTS):
            constants = prepare()
            was_killed = process.killed_at(statement, f"tests.cdn.killed.{name}", **constants)
            check(not was_killed)
            if not was_killed:
                return statement - 1
    raise AssertionError("it has more statements")


def require_agreement(api: Caller) -> None:
    assert account_check(api.account.pk) == []
    held = {hold.key for hold in Hold.objects.all()}
    assert held == {f"cdn:{key}" for key in Permit.objects.exclude(state="closed").values_list("pk", flat=True)}
    for balance in Balance.objects.all():
        assert balance.held == sum(hold.amount for hold in balance.holds.all())


def test_a_permit_is_there_as_a_whole_or_not_at_all(api: Caller) -> None:
    def check(ended: bool) -> None:
        require_agreement(api)
        assert File.objects.count() == Permit.objects.count() == Hold.objects.count()

    assert killed_at_each("permit", dict, check) >= 4
    assert File.objects.count() >= 1


def test_an_upload_that_ends_is_processed_or_ends_again(api: Caller) -> None:
    issued = [make_permit(api.account) for _ in range(STATEMENTS)]
    numbers = iter(issued)

    def prepare() -> dict[str, str]:
        return {"TOKEN": next(numbers).token}

    killed_at_each("complete", prepare, lambda ended: require_agreement(api))
    Permit.objects.filter(state="receiving").update(lease_until=EXPIRED)
    for each in issued:
        if File.objects.get(pk=each.file.pk).status == "uploading":
            upload(each)
    require_agreement(api)
    assert set(File.objects.values_list("status", flat=True)) == {"processing"}


def test_a_permit_grows_as_a_whole_or_not_at_all(api: Caller) -> None:
    grown = 1000 + SMALLEST_STEP
    before: set[str] = set()

    def prepare() -> dict[str, str]:
        before.update(Permit.objects.values_list("pk", flat=True))
        return {"TOKEN": make_permit(api.account).token}

    def check(ended: bool) -> None:
        require_agreement(api)
        permit = Permit.objects.exclude(pk__in=before).get()
        assert (permit.size, permit.reserved_bytes, permit.file.size) in ((100,) * 3, (grown,) * 3)
        assert permit.size == grown or not ended

    assert killed_at_each("grow", prepare, check) >= 8


def test_a_publication_that_dies_is_done_by_the_next_process_and_charged_once(api: Caller) -> None:
    namespace = Namespace.objects.get(account=api.account, is_default=True)
    file = upload(make_permit(api.account, namespace, size=10**9))

    with killed_process() as process:
        for statement in range(1, STATEMENTS):
            File.objects.filter(status="processing").update(lease_until=EXPIRED)
            if File.objects.get().status == "active":  # its commit was the last of what it did
                break
            assert processing.processing_due() == [file.pk]
            process.killed_at(statement, "tests.cdn.killed.publish")
            require_agreement(api)
    made = File.objects.get()
    assert (made.status, made.footprint, made.variants.count()) == ("active", 10**9 + 7, 1)
    entry = Entry.objects.get()
    assert float(entry.amount) == pytest.approx(0.1)
    assert not Hold.objects.exists()


def test_expiry_that_dies_is_done_by_the_next_sweep(api: Caller) -> None:
    def prepare() -> dict[str, str]:
        make_permit(api.account)
        Permit.objects.exclude(state="closed").update(expires_at=EXPIRED)
        return {}

    def check(ended: bool) -> None:
        require_agreement(api)
        sweeps.permits_expire()
        require_agreement(api)

    killed_at_each("expire", prepare, check)
    assert Pool.objects.get(pk=api.account.pk).reserved_bytes == 0
    assert not Hold.objects.exists()


def test_a_purge_that_dies_leaves_no_byte_after_the_sweeps(api: Caller) -> None:
    sizes = []

    def prepare() -> dict[str, str]:
        file = make_file(api.account)
        sizes.append(file.footprint)
        File.objects.filter(pk=file.pk).update(sha256=SHA)
        stored = part_path(file.pk)
        stored.write_bytes(b"x" * 100)
        store_file().save(stored, original_key(file.pk, SHA))
        stored.unlink()
        killed.trash()
        return {}

    def check(ended: bool) -> None:
        require_agreement(api)
        sweeps.purges_continue()
        require_agreement(api)
        files.trash_purge(account=api.account, within=Q(), actor="test")

    killed_at_each("purge", prepare, check)
    assert not File.objects.exists()
    pool = Pool.objects.get(pk=api.account.pk)
    assert (pool.trashed_bytes, pool.month_bytes) == (0, sum(sizes))
    remove_without_grace()
    assert list(store_file().list_files()) == []


def remove_without_grace() -> None:
    from django.conf import settings

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "ENV", settings.ENV.model_copy(update={"cdn_orphan_grace_seconds": 0}))
        call_command("cdn_check")
