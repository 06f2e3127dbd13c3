"""What rows, ledger and files say of pages at one moment, read without the platform's own code."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from tests.chaos.ledger import WORDS
from tests.chaos.sites import TOKEN
from tests.vm.instances import TestInstance

COPIES = (".br", ".gz", ".zst")


class PageRow(NamedTuple):
    id: str
    account_id: str
    name: str
    slug: str
    domain: str
    status: str
    release: int | None
    is_stale: bool


class LiveDeploy(NamedTuple):
    """One that is queued or running."""

    id: str
    page_id: str
    state: str
    claim: str
    deadline: datetime | None


@dataclass(frozen=True)
class ReleaseFiles:
    """`tokens`: every one that is in a file; `without`: files that have none; `words`: accounts' words in all files."""

    files: int = 0
    tokens: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()


@dataclass
class PagesState:
    """`releases`: (page id, number) -> the folder's name that its row has; `files`: the same by what the disk has."""

    rows: list[PageRow] = field(default_factory=list)
    live: list[LiveDeploy] = field(default_factory=list)
    releases: Mapping[tuple[str, int], str] = field(default_factory=dict)
    files: Mapping[tuple[str, int], ReleaseFiles] = field(default_factory=dict)
    current: Mapping[str, int] = field(default_factory=dict)  # page id -> the release that is served
    retained_words: Mapping[str, frozenset[str]] = field(default_factory=dict)
    names: Mapping[tuple[str, str], str] = field(default_factory=dict)  # (domain, slug) -> page id
    folders: frozenset[str] = frozenset()
    unfinished: list[str] = field(default_factory=list)  # below incoming and trash
    deployed: Mapping[str, int] = field(default_factory=dict)  # account id -> deploys that its audit entries have
    charged: Mapping[str, int] = field(default_factory=dict)  # account id -> deploys that its ledger has


_PAGES = "SELECT id, account_id, name, slug, domain, status, release, is_stale FROM pages_page ORDER BY id"
_LIVE = """SELECT id, page_id, state, claim, deadline_at FROM pages_pagedeploy
    WHERE state IN ('queued', 'running') ORDER BY id"""
_RELEASES = "SELECT page_id, number, exported_path FROM pages_pagerelease"
_DEPLOYED = "SELECT account_id FROM pages_pageevent WHERE action = 'deployed'"
_CHARGED = """SELECT balance.account_id FROM credits_entry AS entry
    JOIN credits_balance AS balance ON balance.id = entry.balance_id
    WHERE entry.key LIKE 'hold:deploy:%' OR entry.key LIKE 'deploy:%'"""


def pages_state(instance: TestInstance) -> PagesState:
    """Rows are read before files."""
    root = instance.state / "pages"
    made = PagesState([PageRow(*found) for found in instance.query(_PAGES)])
    made.live = [LiveDeploy(*found) for found in instance.query(_LIVE)]
    made.releases = {(page, number): path.rpartition("/site-")[2] for page, number, path in instance.query(_RELEASES)}
    made.deployed = Counter(found[0] for found in instance.query(_DEPLOYED))
    made.charged = Counter(found[0] for found in instance.query(_CHARGED))
    made.folders = frozenset(_listed(root / "by-id"))
    made.files = {
        (page, int(number)): _release_files(root / "by-id" / page / "releases" / number / "public")
        for page in made.folders
        for number in _listed(root / "by-id" / page / "releases")
    }
    made.current = dict(_current(root / "by-id", made.folders))
    made.retained_words = {page: _release_files(root / "by-id" / page / "retained").words for page in made.folders}
    made.names = dict(_names(root / "by-slug"))
    made.unfinished = [f"{folder}/{name}" for folder in ("incoming", "trash") for name in _listed(root / folder)]
    return made


def _listed(folder: Path) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(os.listdir(folder))  # noqa: PTH208 - names alone
    return []


def _current(folder: Path, pages: frozenset[str]) -> Iterator[tuple[str, int]]:
    for page in pages:
        with suppress(OSError):
            yield page, int((folder / page / "current").readlink().name)


def _names(folder: Path) -> Iterator[tuple[tuple[str, str], str]]:
    for domain in _listed(folder):
        for slug in _listed(folder / domain):
            with suppress(OSError):
                yield (domain, slug), (folder / domain / slug).readlink().name


def _release_files(public: Path) -> ReleaseFiles:
    """A file that vanishes while it is read is of a release that is being removed."""
    count, tokens, without, words = 0, set[str](), set[str](), set[str]()
    for folder, _, names in os.walk(public):
        for name in names:
            if name.endswith(COPIES):
                continue
            with suppress(FileNotFoundError):
                text = (Path(folder) / name).read_text(errors="replace")
                found = set(TOKEN.findall(text))
                count, tokens = count + 1, tokens | found
                words |= {word for word in WORDS if word in text}
                without |= set() if found else {name}
    return ReleaseFiles(count, frozenset(tokens), frozenset(without), frozenset(words))
