"""Operations of the clients on a workspace: one function for each operation, with how often it is chosen.

Each says to the ledger what it is about to do before it does it, and what became of it after.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.answers import Answer
from tests.chaos.ledger import Mark, Possible, Tracked, decreased
from tests.chaos.session import Session

FOLDER = "/root/chaos"
FILES = tuple(f"{FOLDER}/{name}" for name in ("one", "two", "three"))
RAW = "application/octet-stream"
FILE_LINES = 40
BOOT = "/proc/sys/kernel/random/boot_id"
MARK = "/dev/shm/mark"
MARKS = "the memory of a machine is kept"
FILES_KEPT = "an acknowledged file is there and whole"

Operation = Callable[[Session, Tracked], None]


@dataclass(frozen=True)
class Weighted:
    weight: int
    run: Operation


def record_write(value: Possible, new: str | None, before: set[str | None], answer: Answer) -> None:
    """Note what is known of a value after a write of `new` was answered. One that goes on may still fail."""
    if answer.is_done and not answer.goes_on:
        value.acknowledge(new)
    elif answer.is_refused:
        value.withdraw(new, before)
    else:
        value.doubt(new)


def set_value(value: Possible, new: str, send: Callable[[], Answer]) -> Answer:
    before = set(value.values)
    value.begin(new)
    answer = send()
    record_write(value, new, before, answer)
    return answer


# Files


def write_file(session: Session, tracked: Tracked) -> None:
    path = session.random.choice(FILES)
    content = f"{session.token()}\n" * FILE_LINES
    url = f"/workspace/{tracked.id}/overlay/files"
    if session.random.random() < 0.5:
        body = json.dumps({"path": path, "content": base64.b64encode(content.encode()).decode()}).encode()
        request = {"content": body, "headers": {"Content-Type": "application/json"}}
    else:
        request = {"content": content.encode(), "params": {"path": path}, "headers": {"Content-Type": RAW}}
    file = tracked.files.setdefault(path, Possible())
    set_value(file, content, lambda: session.call("write file", "POST", url, tracked, **request))


def read_file(session: Session, tracked: Tracked) -> None:
    path = session.random.choice(FILES)
    file = tracked.files.get(path, Possible())
    answer = session.call(
        "read file", "GET", f"/workspace/{tracked.id}/overlay/files", tracked, params={"path": path},
        headers={"Accept": RAW},
    )  # fmt: skip
    session.expect(FILES_KEPT, file_problems(tracked, path, file, answer))


def file_problems(tracked: Tracked, path: str, file: Possible, answer: Answer) -> list[str]:
    if answer.is_done:
        found: str | None = answer.content.decode(errors="replace")
    elif answer.code == "path_not_found":
        found = None
    else:
        return []
    if found in file.values:
        return []
    wanted = [None if value is None else value[:40] for value in file.values]
    return [f"{tracked.id} {path}: {None if found is None else (len(found), found[:80])}, expected one of {wanted}"]


def write_part_of_a_file(session: Session, tracked: Tracked) -> None:
    content = f"{session.token()}\n" * FILE_LINES
    head = f"POST /workspace/{tracked.id}/overlay/files?path={session.random.choice(FILES)} HTTP/1.1"
    part = f"Content-Length: {2 * len(content)}\r\n\r\n{content}"
    session.send_part("write part of file", head, part.encode())


# Commands and memory


def execute(session: Session, tracked: Tracked, cmd: str, name: str, stdin: str = "") -> list[str] | None:
    """The lines of a command that ended with 0."""
    body = {"cmd": cmd, "stdin": stdin, "timeout_seconds": 30}
    answer = session.call(name, "POST", f"/workspace/{tracked.id}/exec", tracked, json=body)
    found = answer.body if answer.is_done else None
    return found["stdout"].splitlines() if found and found.get("exit_code") == 0 else None


def run_command(session: Session, tracked: Tracked) -> None:
    token = session.token()
    printed = execute(session, tracked, f"echo {token}", "exec")
    wrong = printed is not None and printed != [token]
    session.expect("a command's output is its own", [f"{tracked.id}: {printed}, expected {token}"] if wrong else [])


def write_mark(session: Session, tracked: Tracked) -> None:
    token, generation = session.token(), tracked.generation
    printed = execute(session, tracked, f"cat >{MARK}; cat {BOOT}", "write memory", stdin=token)
    if printed is not None and len(printed) == 1:
        session.ledger.set_mark(tracked, Mark(token, printed[0]), generation)


def read_mark(session: Session, tracked: Tracked) -> None:
    generation = tracked.generation
    printed = execute(session, tracked, f"cat {MARK}; echo; cat {BOOT}", "read memory")
    mark = session.ledger.expected_mark(tracked, generation)
    if printed is not None and mark is not None:
        wrong = printed != [mark.token, mark.boot]
        session.expect(MARKS, [f"{tracked.id}: {printed}, expected {mark}"] if wrong else [])


# Metadata and names: bodies of equal length, each with the account's own word


def write_metadata(session: Session, tracked: Tracked) -> None:
    token = session.token()
    url = f"/workspace/{tracked.id}/metadata"
    answer = set_value(
        tracked.metadata, token,
        lambda: session.call("write metadata", "PUT", url, tracked, json={"metadata": {"text": token}}),
    )  # fmt: skip
    if answer.is_done:
        _expect_text(session, tracked, answer, {token})


def read_metadata(session: Session, tracked: Tracked) -> None:
    answer = session.call("read metadata", "GET", f"/workspace/{tracked.id}/metadata", tracked)
    if answer.is_done:
        _expect_text(session, tracked, answer, tracked.metadata.values)


def _expect_text(session: Session, tracked: Tracked, answer: Answer, wanted: set[str | None]) -> None:
    body = answer.body or {}
    found = (body.get("metadata") or {}).get("text")
    problems = [] if found in wanted else [f"{tracked.id}: metadata {found!r}, expected one of {wanted}"]
    session.expect("an acknowledged change is there", problems)


def write_part_of_metadata(session: Session, tracked: Tracked) -> None:
    body = json.dumps({"metadata": {"text": session.token()}})
    head = f"PUT /workspace/{tracked.id}/metadata HTTP/1.1"
    if session.random.random() < 0.5:
        part = f"Content-Length: {len(body) + 1}\r\n\r\n{body}"
    else:
        part = f"Transfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n{body}\r\n"
    session.send_part("write part of metadata", head, part.encode())


def rename(session: Session, tracked: Tracked) -> None:
    name, before = session.token(), set(tracked.name.values)
    session.ledger.begin_rename(tracked, name)
    answer = session.call("rename", "PUT", f"/workspace/{tracked.id}", tracked, json={"name": name})
    record_write(tracked.name, name, before, answer)


def read_workspace(session: Session, tracked: Tracked) -> None:
    route = session.random.choice(["", "", "/details", "/lifecycle", "/config", "/info", "/stats", "/network"])
    answer = session.call("read", "GET", f"/workspace/{tracked.id}{route}", tracked)
    if answer.is_done and not route:
        name = answer.body["workspace"]["name"]
        wrong = name not in tracked.name.values
        problems = [f"{tracked.id}: named {name!r}, expected one of {tracked.name.values}"] if wrong else []
        session.expect("an acknowledged change is there", problems)


def read_guest(session: Session, tracked: Tracked) -> None:
    route = session.random.choice(["/overlay?path=/root", "/overlay/usage", "/logs", "/logs?source=cmd", "/logs/list"])
    session.call("read guest", "GET", f"/workspace/{tracked.id}{route}", tracked)


def sync(session: Session, tracked: Tracked) -> None:
    session.call("sync", "POST", f"/workspace/{tracked.id}/overlay/sync", tracked)


def read_totals(session: Session, tracked: Tracked) -> None:
    answer = session.call("read totals", "GET", f"/workspace/{tracked.id}/usage/totals", tracked)
    if answer.is_done:
        now = answer.body["usage"]
        session.expect(
            "usage totals never decrease", [f"{tracked.id}: {text}" for text in decreased(tracked.totals, now)]
        )
        tracked.totals = {name: max(value, tracked.totals.get(name, 0)) for name, value in now.items()}


def list_workspaces(session: Session, tracked: Tracked) -> None:
    session.call("list", "GET", "/workspace", params={"limit": 100})


# Power


def power(what: str, *, ends_machine: bool, **fields: object) -> Operation:
    def run(session: Session, tracked: Tracked) -> None:
        if ends_machine:
            session.ledger.lose_memory(tracked.id)
        answer = session.call(what, "POST", f"/workspace/{tracked.id}/{what}", tracked, json=fields)
        if ends_machine and not answer.is_done and not answer.is_refused:
            tracked.may_end = True

    return run


pause = power("pause", ends_machine=False)


def reinstall(session: Session, tracked: Tracked) -> None:
    session.ledger.lose_memory(tracked.id)
    before = {path: set(file.values) for path, file in tracked.files.items()}
    for file in tracked.files.values():
        file.begin(None)
    answer = session.call("reinstall", "POST", f"/workspace/{tracked.id}/reinstall", tracked)
    for path, file in tracked.files.items():
        record_write(file, None, before[path], answer)
    tracked.may_end |= answer.goes_on or (not answer.is_done and not answer.is_refused)


def resize(session: Session, tracked: Tracked) -> None:
    session.ledger.lose_memory(tracked.id)
    url, size = f"/workspace/{tracked.id}/overlay/resize", session.random.choice([72, 80, 88, 96])
    info = session.call("read", "GET", f"/workspace/{tracked.id}/resources", tracked)
    if not info.is_done or info.body["resources"]["disk_size_mb"] > size:
        return
    answer = session.call("resize", "PUT", url, tracked, json={"size_mb": size})
    tracked.may_end |= not answer.is_done and not answer.is_refused


def make_temporary(session: Session, tracked: Tracked) -> None:
    session.call("ttl", "POST", f"/workspace/{tracked.id}/lifecycle/temporary", tracked, json={"ttl": "2h"})
    session.call("ttl", "PUT", f"/workspace/{tracked.id}/lifecycle/ttl", tracked, json={"ttl": "3h"})
    session.call("ttl", "POST", f"/workspace/{tracked.id}/ping", tracked, json={})
    session.call("ttl", "POST", f"/workspace/{tracked.id}/lifecycle/permanent", tracked, json={"restart_policy": "no"})


def change_network(session: Session, tracked: Tracked) -> None:
    wanted = session.random.choice([
        {"allow_internet": True, "egress": []},
        {"allow_internet": False, "egress": []},
        {"allow_internet": False, "egress": ["198.51.100.0/24"]},
        {"allow_internet": False, "egress": ["api.example.com"]},
    ])  # fmt: skip
    session.call("network", "PATCH", f"/workspace/{tracked.id}/network", tracked, json=wanted)


def delete(session: Session, tracked: Tracked) -> None:
    session.ledger.lose_memory(tracked.id)
    tracked.may_vanish = True
    answer = session.call("delete", "DELETE", f"/workspace/{tracked.id}", tracked)
    tracked.deleted = answer.is_done or answer.status == 404


def expire(session: Session, tracked: Tracked) -> None:
    """A TTL that removes it in some seconds."""
    session.ledger.lose_memory(tracked.id)
    tracked.may_vanish = True
    ttl = {"ttl": session.random.randint(2, 10), "ttl_action": "remove"}
    answer = session.call("ttl", "POST", f"/workspace/{tracked.id}/lifecycle/temporary", tracked, json=ttl)
    tracked.deleted = answer.is_done


def read_foreign(session: Session, tracked: Tracked) -> None:
    """The other account's workspaces do not exist for this one."""
    others = [key for key, other in list(session.ledger.workspaces.items()) if other.word != session.word]
    if others:
        key = session.random.choice(sorted(others))
        route = session.random.choice(["", "/metadata", "/overlay", "/usage/totals", "/logs"])
        answer = session.call("read foreign", "GET", f"/workspace/{key}{route}")
        wrong = answer.status and not (answer.status == 404 or answer.status == 503)
        session.expect("no foreign workspace is reached", [f"{key}{route}: {answer.status}"] if wrong else [])
