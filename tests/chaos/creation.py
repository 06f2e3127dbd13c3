"""Create requests: whole ones, repeated with one key, and ones that break off."""

from __future__ import annotations

import json

from tests.chaos.answers import Answer
from tests.chaos.ledger import Creation, Tracked
from tests.chaos.session import Session


def create(session: Session, creation: Creation) -> Answer:
    """Ask for it once. The same key and body make one workspace, however often they are sent."""
    body = {
        "name": creation.name,
        "image": "localhost/tests-busybox:1",
        "mode": "permanent",
        "wait_ready": session.random.random() < 0.7,
        "ready_timeout_seconds": 30,
        "config": {"cpus": 1, "memory_mb": 128, "disk_size_mb": 64},
    }
    answer = session.call("create", "POST", "/workspace", json=body, headers={"Idempotency-Key": creation.key})
    if answer.is_done:
        made = answer.body["workspace"]
        problems = [] if creation.ids <= {made["id"]} else [f"{creation.key} made {creation.ids} and {made['id']}"]
        if made["name"] != creation.name and not creation.ids:
            problems.append(f"{creation.name} was asked for and {made['name']!r} was answered")
        session.expect("one workspace for each idempotency key", problems)
    return answer


def create_part(session: Session, tracked: Tracked) -> None:
    """A create whose body breaks off: there is never a workspace of this name, nor one without."""
    body = json.dumps({"name": f"never-{session.token()}", "image": "localhost/tests-busybox:1"})
    part = body[: session.random.choice([0, 1, len(body) // 2, len(body)])]
    if session.random.random() < 0.5:
        text = f"Content-Length: {len(body) + 1}\r\n\r\n{part}"
    else:
        text = (
            f"Transfer-Encoding: chunked\r\n\r\n{f'{len(part):x}'}\r\n{part}\r\n"
            if part
            else ("Transfer-Encoding: chunked\r\n\r\n")
        )
    session.send_part("create with part", "POST /workspace HTTP/1.1", text.encode())
