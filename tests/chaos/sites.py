"""Operations of a client on pages: the site of a machine is written, deployed, replaced, rolled back, renamed, deleted.

Every version has a folder and a token of its own, which is in the folder's name and in all of its files.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.chaos import operations as op
from tests.chaos.answers import Answer
from tests.chaos.ledger import WORDS, Site, Tracked
from tests.chaos.session import Session

TOKEN = re.compile(rf"(?:{'|'.join(WORDS)})-[0-9]{{8}}-[0-9a-f]{{8}}")
# One more file is the same in every version of an account, so that releases share it.
FILES = ("index.html", "style.css", "data.json", "a/b/c.txt")
SAME = "same.txt"
COUNT = len(FILES) + 2
# No version is removed: a deploy without an answer may still read it. Files above 1 KiB have compressed copies, and the
# chunk of an earlier release is retained.
_WRITE = """
mkdir -p /root/site-{token}/a/b && cd /root/site-{token} &&
for file in {files}; do for line in $(seq 80); do echo {token}; done >$file; done &&
cp index.html app-$(echo {token} | sha256sum | head -c 12).js &&
for line in $(seq 200); do echo {word}; done >{same} && sync && echo written
"""
SERVES = "the edge serves the live release"


def deploy_site(session: Session, tracked: Tracked) -> None:
    """A new version; the first one makes the page."""
    token = session.token()
    script = _WRITE.format(token=token, word=session.word, files=" ".join(FILES), same=SAME)
    if op.execute(session, tracked, script, "write site") != ["written"]:
        return
    site = site_of(session, tracked)
    if site is None:
        _create(session, tracked, token)
        return
    before = set(site.content.values)
    site.written = token
    site.content.begin(token)
    body = {"path": f"/root/site-{token}"}
    answer = session.call("deploy", "POST", f"/pages/{site.slug}/deploy", json=body)
    op.record_write(site.content, token, before, answer)


def _create(session: Session, tracked: Tracked, token: str) -> None:
    site = Site(f"page {session.token()}", session.word, tracked.id, written=token)
    site.content.begin(token)
    session.ledger.begin_site(site)
    slug = f"site-{site.name.rpartition('-')[2]}"
    body = {"workspace_id": tracked.id, "path": f"/root/site-{token}", "name": site.name, "slug": slug}
    answer = session.call("create page", "POST", "/pages", json=body)
    if answer.is_done:
        site.slug, site.made = slug, True
    site.may_vanish = answer.status != 201
    op.record_write(site.content, token, {None}, answer)


def site_of(session: Session, tracked: Tracked) -> Site | None:
    """The page of a workspace; where its slug is in doubt, the list says it. None where there is none, or no answer."""
    known = [site for site in session.ledger.sites.values() if site.workspace_id == tracked.id and not site.deleted]
    found = next((site for site in known if site.slug), None)
    if found is not None or not known:
        return found
    answer = session.call("list pages", "GET", "/pages")
    slugs = {row["name"]: row["slug"] for row in answer.body["pages"]} if answer.is_done else {}
    for site in known:
        site.slug = slugs.get(site.name, "")
    return next((site for site in known if site.slug), None)


def rollback_site(session: Session, tracked: Tracked) -> None:
    site = site_of(session, tracked)
    answer = session.call("releases", "GET", f"/pages/{site.slug}/releases") if site else Answer(0)
    if site is None or not answer.is_done or not answer.body["releases"]:
        return
    chosen: dict[str, Any] = session.random.choice(answer.body["releases"])
    token = chosen["exported_path"].removeprefix("/root/site-")
    before = set(site.content.values)
    site.content.begin(token)
    body = {"release": chosen["release"]}
    op.record_write(
        site.content, token, before, session.call("rollback", "POST", f"/pages/{site.slug}/rollback", json=body)
    )


def rename_site(session: Session, tracked: Tracked) -> None:
    site = site_of(session, tracked)
    if site is None:
        return
    old, new = site.slug, f"site-{session.token().rpartition('-')[2]}"
    answer = session.call("rename page", "PUT", f"/pages/{old}", json={"slug": new})
    site.slug = new if answer.is_done else old if answer.is_refused else ""


def switch_site(session: Session, tracked: Tracked) -> None:
    """Off, and on again."""
    site = site_of(session, tracked)
    for what in ("disable", "enable") if site else ():
        session.call(f"{what} page", "POST", f"/pages/{site.slug}/{what}")  # type: ignore[union-attr]


def delete_site(session: Session, tracked: Tracked) -> None:
    site = site_of(session, tracked)
    if site is not None:
        site.may_vanish = True
        answer = session.call("delete page", "DELETE", f"/pages/{site.slug}")
        site.deleted = answer.is_done
        site.slug = ""


def deploy_part(session: Session, tracked: Tracked) -> None:
    """A deploy whose body breaks off, and one whose client leaves before the answer: of a version that is there."""
    site = site_of(session, tracked)
    if site is None:
        return
    body = json.dumps({"workspace_id": tracked.id, "path": f"/root/site-{site.written}"})
    text = f"Content-Length: {len(body) + session.random.choice([0, 1])}\r\n\r\n{body}"
    site.content.begin(site.written)
    site.content.doubt(site.written)
    session.send_part("deploy with part", f"POST /pages/{site.slug}/deploy HTTP/1.1", text.encode())


def check_served(session: Session, base_url: str, site: Site, host: str, is_active: bool) -> None:
    """At a quiet point: what a visitor gets has one of the tokens that the live release may have."""
    headers = {"Host": f"{host}:{urlsplit(base_url).port}"}
    answer = httpx.get(f"{base_url}/index.html", headers=headers, timeout=30, trust_env=False)
    found = set(TOKEN.findall(answer.text))
    if is_active:
        right = answer.status_code == 200 and len(found) == 1 and found <= site.content.values
        if right:
            site.content.settle(next(iter(found)))
    else:
        right = answer.status_code == 404 and not found
    shown = f"{host}, active: {is_active}: {answer.status_code} {sorted(found)}, expected {site.content.values}"
    session.expect(SERVES, [] if right else [shown])


CHOICES = (
    op.Weighted(12, deploy_site),
    op.Weighted(4, rollback_site),
    op.Weighted(3, rename_site),
    op.Weighted(2, switch_site),
    op.Weighted(2, deploy_part),
    op.Weighted(1, delete_site),
    op.Weighted(1, op.power("stop", ends_machine=True)),
    op.Weighted(3, op.power("start", ends_machine=False)),
)
