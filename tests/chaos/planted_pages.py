"""A page in which all is right, and what is wrong with it in each way that an invariant finds (test_invariants.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.chaos.ledger import WORDS, Ledger, Possible, Site
from tests.chaos.page_snapshot import LiveDeploy, PageRow, PagesState, ReleaseFiles
from tests.chaos.sites import COUNT, SAME
from tests.chaos.snapshot import Snapshot

PAGE, NAME = "pg_1", f"page {WORDS[0]}-00000001-00000001"
TOKEN, OTHER = (f"{WORDS[0]}-0000000{number}-0000000a" for number in (2, 3))
ROW = PageRow(PAGE, "ac_1", NAME, "site-one", "pages.localhost", "active", 1, False)
WHOLE = ReleaseFiles(COUNT, frozenset({TOKEN}), frozenset({SAME}), frozenset({WORDS[0]}))
Plant = Callable[[Snapshot, Ledger], Snapshot]


def right_pages(ledger: Ledger) -> PagesState:
    ledger.begin_site(Site(NAME, WORDS[0], "ws_1", "site-one", Possible(TOKEN), made=True))
    return PagesState(
        rows=[ROW],
        releases={(PAGE, 1): TOKEN},
        files={(PAGE, 1): WHOLE},
        current={PAGE: 1},
        names={("pages.localhost", "site-one"): PAGE},
        folders=frozenset({PAGE}),
        deployed={"ac_1": 1},
        charged={"ac_1": 1},
    )


def changed(**fields: Any) -> Plant:
    """The state with other values."""

    def plant(snapshot: Snapshot, ledger: Ledger) -> Snapshot:
        return replace(snapshot, pages=replace(snapshot.pages, **fields))

    plant.__name__ = "_".join(fields)
    return plant


def overdue_deploy(snapshot: Snapshot, ledger: Ledger) -> Snapshot:
    live = LiveDeploy("dep_1", PAGE, "running", "claim", snapshot.now - timedelta(minutes=1))
    return changed(live=[live])(snapshot, ledger)


def deleted_and_there(snapshot: Snapshot, ledger: Ledger) -> Snapshot:
    ledger.sites[NAME].deleted = True
    return snapshot


def another_version_acknowledged(snapshot: Snapshot, ledger: Ledger) -> Snapshot:
    ledger.sites[NAME].content = Possible(OTHER)
    return snapshot


def files(**fields: Any) -> Plant:
    return changed(files={(PAGE, 1): replace(WHOLE, **fields)})


PAGE_PLANTED: dict[str, list[Plant]] = {
    "no deploy is past its deadline": [overdue_deploy],
    "every release is whole": [
        files(tokens=frozenset({TOKEN, OTHER})), files(files=COUNT - 1), files(without=frozenset({SAME, "index.html"})),
    ],
    "rows and releases agree": [
        changed(files={}),
        changed(files={(PAGE, 1): WHOLE, (PAGE, 2): WHOLE}),
        changed(current={}),
        changed(releases={}),
        changed(rows=[ROW._replace(is_stale=True)]),
    ],
    "names lead to their pages": [
        changed(names={}),
        changed(names={("pages.localhost", "site-one"): "pg_2"}),
        changed(rows=[ROW._replace(status="disabled")]),
    ],
    "nothing unfinished stays": [changed(unfinished=["incoming/dep_9"]), changed(folders=frozenset({PAGE, "pg_gone"}))],
    "no page is without a release": [changed(rows=[ROW._replace(release=None)])],
    "no foreign word in a page": [
        files(words=frozenset(WORDS)), changed(retained_words={PAGE: frozenset({WORDS[1]})}),
    ],
    "deploys are charged once": [changed(charged={"ac_1": 2}), changed(charged={})],
    "acknowledged pages are there": [
        changed(rows=[]),
        changed(rows=[ROW._replace(account_id="ac_2")]),
        deleted_and_there,
        another_version_acknowledged,
    ],
}  # fmt: skip
