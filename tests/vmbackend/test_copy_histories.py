"""Forks of forks of forks, with snapshots and parents that go in any order: each has what it must, and nothing is left.

STEPS in the environment says how many steps a history has.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run_extent import campaign_after, number_of

from .conftest import Harness
from .copy_histories import History

pytestmark = [pytest.mark.vm, pytest.mark.timeout(7200)]
STEPS = number_of("STEPS", 20, 200)


@pytest.mark.parametrize("seed", campaign_after(1, range(6)))
def test_a_history_of_copies_leaves_each_with_its_contents_and_nothing_without_an_owner(
    libvirt_harness: Harness, tmp_path: Path, seed: int
) -> None:
    history = History(libvirt_harness, seed, tmp_path)
    try:
        history.make_line()
        for _ in range(STEPS):
            history.step()
        history.remove_all()
    except BaseException as error:
        error.add_note("\n".join(history.done))
        raise
    assert libvirt_harness.driver.inventory().ids() == frozenset()
