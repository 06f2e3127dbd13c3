"""The folders in which the edge finds answers: how many there are, and what a late or dead process leaves."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from edge.route_cache import RouteCache
from tests.workspaces.network.clock import SECOND, Clock, found
from workspaces.edge_auth import fast_path


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock.set_up(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def answers(folder: Path) -> RouteCache:
    return RouteCache(folder)


def seconds(folder: Path) -> list[int]:
    return sorted(int(place.name) for place in folder.iterdir())


def test_there_are_never_more_than_a_few_folders(answers: RouteCache, clock: Clock, folder: Path) -> None:
    for clock.now in [*range(SECOND, SECOND + 20), SECOND - 500, *range(SECOND + 3, SECOND + 9), SECOND + 10_000]:
        for label in ("a", "b"):
            answers.store(clock.now, label, "10.0.0.1:80")
            answers.invalidate([label])
        assert seconds(folder) == [clock.now]


def test_a_clock_that_is_set_back_restores_no_invalidated_route(
    answers: RouteCache, clock: Clock, folder: Path
) -> None:
    answers.store(SECOND, "a", "10.0.0.1:80")
    clock.now = SECOND - 5
    answers.invalidate(["a"])
    clock.now = SECOND
    assert found(folder) == []


def test_what_a_dead_process_left_is_cleared_at_the_next_start(
    answers: RouteCache, clock: Clock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_path, "route_cache", lambda: answers)
    for second, files in ((5, "a"), (SECOND - 1, "b"), (SECOND, "c")):
        (folder / str(second) / files).mkdir(parents=True)
    (folder / str(SECOND - 2)).mkdir()
    fast_path.EdgeAuthFastPath(lambda environ, start: [])
    assert seconds(folder) == [SECOND]
    assert (folder / str(SECOND) / "c").is_dir()


def test_a_half_made_folder_is_used_on(answers: RouteCache, clock: Clock, folder: Path) -> None:
    (folder / str(SECOND) / "a").mkdir(parents=True)
    answers.store(SECOND, "a", "10.0.0.1:80")
    answers.store(SECOND, "a", "10.0.0.1:80")
    answers.store(SECOND, "b", "10.0.0.2:80")
    assert found(folder) == [f"{SECOND}/a/10.0.0.1:80", f"{SECOND}/b/10.0.0.2:80"]
    assert answers.cached_addresses() == {"10.0.0.1", "10.0.0.2"}


def test_nothing_is_cached_any_more_however_many_answer_late(answers: RouteCache, clock: Clock, folder: Path) -> None:
    """All threads look up before; some of them keep while it is forgotten, by two at once."""
    labels = [f"label{number}" for number in range(200)]
    ready = threading.Barrier(6)

    def writer() -> None:
        ready.wait()
        for label in labels:
            answers.store(SECOND, label, "10.0.0.1:80")

    def invalidator() -> None:
        ready.wait()
        for label in labels:
            answers.invalidate([label])

    threads = [threading.Thread(target=work) for work in (writer,) * 4 + (invalidator,) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found(folder) == []
    for label in labels:
        assert (folder / str(SECOND) / label).is_file()
