"""Which files a run with some marks alone reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.marked_files import CAMPAIGNS, MACHINES, is_read, may_have, wants_alone

TESTS = Path(__file__).parent


@pytest.mark.parametrize(
    "expression",
    [
        "host or vm",
        "rows and (host or vm)",
        "not campaign and (host or vm)",
        "host and not vm",
        "vm",
        "vm and not rows",
    ],
)
def test_an_expression_of_machines_alone_is_seen(expression: str) -> None:
    assert wants_alone(MACHINES, expression)


@pytest.mark.parametrize(
    "expression", ["", "not vm and not host", "rows and not vm and not host", "rows", "rows or vm"]
)
def test_an_expression_that_others_fulfil_is_seen(expression: str) -> None:
    assert not wants_alone(MACHINES, expression)


def test_files_are_known_by_their_folder_or_their_marks(tmp_path: Path) -> None:
    assert may_have(MACHINES, TESTS / "vm/test_sleep.py")
    assert may_have(MACHINES, TESTS / "vmbackend/test_sleep_contract.py"), "marked by the parameter of a fixture"
    assert not may_have(MACHINES, TESTS / "test_layout.py")
    for text, has in (("pytestmark = [pytest.mark.host]\n", True), ("vm = mark.hostile\n", False)):
        path = tmp_path / "test_it.py"
        path.write_text(text)
        assert may_have(MACHINES, path) is has


def test_campaigns_are_read_alone_and_left_out_of_no_run_that_wants_them() -> None:
    files = [TESTS / name for name in ("vm/test_faults.py", "commands/test_edge_restarts.py", "test_layout.py")]
    assert may_have(CAMPAIGNS, files[1]), "marked by `campaign_after`"
    for expression, read in (
        ("campaign and (host or vm)", files[:1]),
        ("campaign and not vm and not host", files[:2]),
        ("not campaign and not vm and not host", files),
    ):
        assert [path for path in files if is_read(path, expression)] == read
