"""What must hold of pages at a quiet point: pure functions, as `invariants`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tests.chaos.ledger import Ledger
from tests.chaos.page_snapshot import PageRow, PagesState
from tests.chaos.sites import COUNT, SAME
from tests.chaos.snapshot import Snapshot

# The sweep that ends an overdue deploy runs every ten seconds.
GRACE = timedelta(seconds=25)


def no_deploy_is_overdue(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    for live in snapshot.pages.live:
        if live.deadline and snapshot.now > live.deadline + GRACE:
            yield f"{live.id} of {live.page_id} is {live.state} since {live.deadline:%H:%M:%S}, its deadline"


def every_release_is_whole(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    """All of one version: that of the folder which its row names."""
    for (page, number), found in snapshot.pages.files.items():
        token = snapshot.pages.releases.get((page, number))
        if token is None:
            continue
        if found.tokens != {token} or found.files != COUNT or found.without != {SAME}:
            yield f"release {number} of {page}, exported from {token}: {found}"


def rows_and_releases_agree(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    state = snapshot.pages
    busy = {live.page_id for live in state.live}
    for page, number in sorted(state.releases.keys() - state.files.keys()):
        yield f"release {number} of {page} has a row and no files"
    for page, number in sorted(state.files.keys() - state.releases.keys()):
        if page not in busy:
            yield f"release {number} of {page} has files and no row"
    for row in state.rows:
        if state.current.get(row.id) != row.release and row.id not in busy:
            yield f"{row.id}: release {row.release} is to be live, {state.current.get(row.id)} is"
        if row.release is not None and (row.id, row.release) not in state.releases:
            yield f"{row.id}: release {row.release} is live and has no row"
        if row.is_stale:
            yield f"{row.id} is stale"


def names_lead_to_their_pages(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    state = snapshot.pages
    served = [row for row in state.rows if row.status == "active" and row.release is not None]
    wanted = {(row.domain, row.slug): row.id for row in served}
    for name in sorted(wanted.keys() | state.names.keys()):
        if wanted.get(name) != state.names.get(name):
            yield f"{name} leads to {state.names.get(name)}, not {wanted.get(name)}"


def nothing_unfinished_stays(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    state = snapshot.pages
    live = {f"incoming/{deploy.claim}" for deploy in state.live}
    yield from (name for name in state.unfinished if name not in live)
    yield from (f"by-id/{page} has no row" for page in sorted(state.folders - {row.id for row in state.rows}))


def no_page_is_without_a_release(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    """A creation that failed leaves its slug to the next one."""
    busy = {live.page_id for live in snapshot.pages.live}
    for row in snapshot.pages.rows:
        if row.release is None and row.id not in busy:
            yield f"{row.id} keeps the slug {row.slug}, and has no release and no deploy"


def no_foreign_word_is_in_a_page(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    state = snapshot.pages
    owners = {row.id: ledger.accounts.get(row.account_id, "") for row in state.rows}
    for page, owner in owners.items():
        words = state.retained_words.get(page, frozenset()).union(
            *(found.words for (of, _), found in state.files.items() if of == page)
        )
        yield from (f"{page} of {owner} has {word}" for word in sorted(words - {owner}))


def deploys_are_charged_once(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    state = snapshot.pages
    for account in sorted(state.deployed.keys() | state.charged.keys()):
        deployed, charged = state.deployed.get(account, 0), state.charged.get(account, 0)
        if deployed != charged:
            yield f"{account} has {deployed} successful deploys and {charged} charges"


def acknowledged_pages_are_there(snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    """With the version that was acknowledged last, or one in doubt after it."""
    rows = {row.name: row for row in snapshot.pages.rows}
    for site in ledger.sites.values():
        row = rows.get(site.name)
        if row is None:
            if site.made and not site.may_vanish:
                yield f"{site.name} was acknowledged and is missing"
        elif site.deleted:
            yield f"{site.name} is still there after its deletion"
        elif (token := _live_token(row, snapshot.pages)) not in site.content.values:
            yield f"{site.name} ({row.id}) serves {token}, expected one of {site.content.values}"
    for row in snapshot.pages.rows:
        if row.name not in ledger.sites or ledger.sites[row.name].word != ledger.accounts.get(row.account_id):
            yield f"{row.id}, named {row.name!r}, was not asked for by {row.account_id}"


def _live_token(row: PageRow, state: PagesState) -> str | None:
    return None if row.release is None else state.releases.get((row.id, row.release))


PAGE_INVARIANTS = {
    "no deploy is past its deadline": no_deploy_is_overdue,
    "every release is whole": every_release_is_whole,
    "rows and releases agree": rows_and_releases_agree,
    "names lead to their pages": names_lead_to_their_pages,
    "nothing unfinished stays": nothing_unfinished_stays,
    "no page is without a release": no_page_is_without_a_release,
    "no foreign word in a page": no_foreign_word_is_in_a_page,
    "deploys are charged once": deploys_are_charged_once,
    "acknowledged pages are there": acknowledged_pages_are_there,
}
