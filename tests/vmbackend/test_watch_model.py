"""`guest watch` under changes at random: what its events say is what is there, and every folder is watched."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.run_extent import WHOLE
from tests.vmbackend.local_dropbear import missing_requirement
from tests.vmbackend.watch_factory import Picture, Watch

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")
SEEDS = 60 if WHOLE else 4
CHANGES = 20_000 if WHOLE else 1000
SECONDS = 60.0
NAMES = [f"n{number}" for number in range(6)]


def change_at_random(tree: Path, chance: random.Random, count: int) -> None:
    """Make, rename, unpack, link and remove; what fails because of an earlier change is left."""
    for _ in range(count):
        one, two = (tree.joinpath(*chance.choices(NAMES, k=chance.randrange(1, 5))) for _ in range(2))
        with suppress(OSError):
            change_once(one, two, chance)


def change_once(one: Path, two: Path, chance: random.Random) -> None:
    match chance.randrange(10):
        case 0 | 1:
            one.mkdir(parents=chance.random() < 0.5)
        case 2 | 3:
            one.write_bytes(b"x")
        case 4 | 5:
            one.rename(two)
        case 6:
            for deep in range(3):
                (one / f"t{deep}/u").mkdir(parents=True)
                (one / f"t{deep}/u/file").touch()
        case 7:
            two.hardlink_to(one)
        case 8:
            own = one.with_name(f".partial-{chance.getrandbits(64):016x}")
            own.write_bytes(b"y")
            try:
                own.rename(one)
            finally:
                own.unlink(missing_ok=True)
        case _ if one.is_dir():
            shutil.rmtree(one)
        case _:
            one.unlink()


def follow(watch: Watch, picture: Picture) -> None:
    """Read until the picture is right: it must become so."""
    until = time.monotonic() + SECONDS
    while picture.paths != (real := picture.real()):
        assert time.monotonic() < until, sorted(picture.paths ^ real)[:10]
        while event := watch.read(0.2):
            picture.apply(event)


def check(tree: Path, watch: Watch, picture: Picture) -> None:
    """The picture is right, and so it is after a file was made in every folder."""
    follow(watch, picture)
    for folder, _, _ in os.walk(tree):
        (Path(folder) / "probe").touch()
    follow(watch, picture)
    assert not picture.overflows


def run(program: Path, tree: Path, seed: int, threads: int, *, pauses: bool = False) -> None:
    """With pauses the program sees most of what happens long after it did."""
    tree.mkdir()
    change_at_random(tree, random.Random(seed), 100)
    watch = Watch(program, tree)
    try:
        assert watch.read(60) is not None
        picture = Picture(tree)
        change = [(tree, random.Random(f"{seed} {number}"), CHANGES // threads) for number in range(threads)]
        running = [threading.Thread(target=change_at_random, args=each) for each in change]
        for thread in running:
            thread.start()
        chance = random.Random(seed)
        while any(thread.is_alive() for thread in running):
            if pauses:
                watch.process.send_signal(signal.SIGSTOP)
                time.sleep(chance.random() / 5)
                watch.process.send_signal(signal.SIGCONT)
            if event := watch.read(0.01):
                picture.apply(event)
        check(tree, watch, picture)
    finally:
        watch.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_picture_of_the_events_is_what_is_there(hold_program: Path, tmp_path: Path, seed: int) -> None:
    run(hold_program, tmp_path / "tree", seed, 1)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_changed_long_ago_is_told_from_what_is_there_now(
    hold_program: Path, tmp_path: Path, seed: int
) -> None:
    run(hold_program, tmp_path / "tree", 100 + seed, 1, pauses=True)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_several_at_once_may_change_the_tree(hold_program: Path, tmp_path: Path, seed: int) -> None:
    run(hold_program, tmp_path / "tree", 200 + seed, 3, pauses=seed % 2 == 1)
