"""At a quiet point: what was acknowledged is read back through the API, of each workspace by itself."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.chaos import operations as op
from tests.chaos.answers import Answer
from tests.chaos.ledger import Possible, Tracked
from tests.chaos.report import Report
from tests.chaos.session import Session
from tests.chaos.sites import check_served
from tests.chaos.sleep import SleepRequests
from tests.vm.client import until
from tests.vm.instances import TestInstance

SERVES = "a quiet platform serves every request"
AT_ONCE = 3
# Shares of the workspaces at the end of a quiet point.
SLEEPING, PAUSED = 0.35, 0.15


def verify_all(sessions: dict[str, Session], *, start_all: bool) -> None:
    """Every tracked workspace, some at once; all of them are at rest. `start_all`: also those that are stopped.

    Values that were in doubt are certain afterwards.
    """
    ledger = next(iter(sessions.values())).ledger
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wanted = [tracked for tracked in ledger.workspaces.values() if not tracked.may_vanish]
        list(pool.map(lambda tracked: _verify(sessions[tracked.word], tracked, start_all), wanted))
    for session in sessions.values():
        _require(session, session.call("quiet list", "GET", "/workspace", params={"limit": 100}))


def _verify(session: Session, tracked: Tracked, start_all: bool) -> None:
    row = _require(session, session.call("quiet read", "GET", f"/workspace/{tracked.id}", tracked))
    if row is None:
        return
    status = row["workspace"]["status"]
    op.read_metadata(session, tracked)
    op.read_totals(session, tracked)
    _settle(tracked.name, row["workspace"]["name"])
    metadata = _require(session, session.call("quiet read", "GET", f"/workspace/{tracked.id}/metadata", tracked))
    if metadata is not None:
        _settle(tracked.metadata, metadata["metadata"].get("text"))
    if status in ("paused", "sleeping") or (start_all and status == "stopped"):
        answer = session.call("quiet start", "POST", f"/workspace/{tracked.id}/start", tracked, json={})
        status = "running" if _require(session, answer) is not None else status
    if status == "running":
        _verify_machine(session, tracked)
    elif status == "failed":  # its creation met too many faults; its owner can delete it
        op.delete(session, tracked)


def _verify_machine(session: Session, tracked: Tracked) -> None:
    """Files and memory of a machine that runs."""
    body = {"cmd": ["true"], "timeout_seconds": 30}
    _require(session, session.call("quiet exec", "POST", f"/workspace/{tracked.id}/exec", tracked, json=body))
    op.read_mark(session, tracked)
    for path, file in tracked.files.items():
        request = {"params": {"path": path}, "headers": {"Accept": op.RAW}}
        answer = session.call("quiet file", "GET", f"/workspace/{tracked.id}/overlay/files", tracked, **request)
        session.expect(op.FILES_KEPT, op.file_problems(tracked, path, file, answer))
        if answer.is_done:
            file.settle(answer.content.decode(errors="replace"))
        elif answer.code == "path_not_found":
            file.settle(None)
        else:
            _require(session, answer)
    printed = op.execute(session, tracked, f"ls -A {op.FOLDER} 2>/dev/null; true", "quiet list files")
    known = {path.rpartition("/")[2] for path in op.FILES}
    strange = sorted(set(printed or ()) - known)
    session.expect("no partial file stays", [f"{tracked.id}: {strange}"] if strange else [])


def leave_expectations(sessions: dict[str, Session], sleep: SleepRequests) -> None:
    """A file and a mark in each running machine, some of these asleep or paused: what the next phase must keep."""

    def leave(tracked: Tracked) -> None:
        session = sessions[tracked.word]
        op.write_file(session, tracked)
        op.write_mark(session, tracked)
        chosen = session.random.random()
        if chosen < SLEEPING:
            sleep.put_to_sleep(session, tracked)
        elif chosen < SLEEPING + PAUSED:
            op.pause(session, tracked)

    tracked = next(iter(sessions.values())).ledger.workspaces.values()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(leave, [each for each in tracked if not each.may_vanish]))


def verify_sites(sessions: dict[str, Session], instance: TestInstance) -> None:
    """Every page as visitors get it. What its live release holds is certain afterwards."""
    base_url = instance.settings.base_url
    for session in sessions.values():
        listed = _require(session, session.call("quiet list", "GET", "/pages"))
        for row in (listed or {}).get("pages", []):  # type: ignore[attr-defined]
            site = session.ledger.sites.get(row["name"])
            if site is not None and row["release"] is not None:
                site.slug = row["slug"]
                check_served(session, base_url, site, f"{row['slug']}.{row['domain']}", row["status"] == "active")


def verify_credits(instance: TestInstance, report: Report) -> None:
    done = instance.command("manage", "--", "ledger_check")
    report.record_check("the ledger agrees", [] if done.returncode == 0 else [done.stdout[-500:] + done.stderr[-500:]])


def _settle(value: Possible, found: str | None) -> None:
    if found in value.values:
        value.settle(found)


def _require(session: Session, answer: Answer) -> dict[str, object] | None:
    """The body of a success; anything else is a violation here."""
    shown = f"{answer.status} {answer.content[:300]!r}"
    session.expect(SERVES, [] if answer.is_done else [shown])
    return answer.body if answer.is_done else None


def delete_unwanted(session: Session) -> None:
    """Delete what no client uses: deletes without an answer, what an abandoned create made, and strangers."""
    ledger = session.ledger
    for tracked in [*ledger.workspaces.values()]:
        if tracked.word == session.word and tracked.may_vanish and not tracked.deleted:
            answer = session.call("quiet delete", "DELETE", f"/workspace/{tracked.id}", tracked)
            tracked.deleted = answer.status == 404 or _require(session, answer) is not None
    abandoned = {made.name for made in ledger.creations.values() if made.abandoned and made.word == session.word}
    listed = _require(session, session.call("quiet list", "GET", "/workspace", params={"limit": 100}))
    for row in (listed or {}).get("workspaces", []):  # type: ignore[attr-defined]
        if row["name"] in abandoned or row["name"] not in ledger.names:
            _require(session, session.call("quiet delete", "DELETE", f"/workspace/{row['id']}"))


def delete_namespaces(session: Session) -> None:
    """Those of requests that met a fault before they deleted theirs."""
    listed = _require(session, session.call("quiet list", "GET", "/namespaces", params={"limit": 100}))
    for row in (listed or {}).get("data", []):  # type: ignore[attr-defined]
        if not row["is_default"]:
            _require(session, session.call("quiet delete", "DELETE", f"/namespaces/{row['slug']}"))


def forget_gone(sessions: dict[str, Session]) -> None:
    """Workspaces that may be gone and are."""
    for tracked in list(next(iter(sessions.values())).ledger.workspaces.values()):
        if tracked.may_vanish:
            session = sessions[tracked.word]
            if session.call("quiet read", "GET", f"/workspace/{tracked.id}", tracked).status == 404:
                session.ledger.remove(tracked)


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> bool:
    """`until` as a condition instead of an exception."""
    try:
        until(condition, seconds, what, busy=1)
    except AssertionError:
        return False
    return True
