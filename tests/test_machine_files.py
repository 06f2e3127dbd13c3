"""Which files a run of tests with machines alone reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.machine_files import may_have_machines, wants_machines_alone


@pytest.mark.parametrize(
    "expression", ["host or vm", "rows and (host or vm)", "host and not vm", "vm", "vm and not rows"]
)
def test_an_expression_of_machines_alone_is_seen(expression: str) -> None:
    assert wants_machines_alone(expression)


@pytest.mark.parametrize(
    "expression", ["", "not vm and not host", "rows and not vm and not host", "rows", "rows or vm"]
)
def test_an_expression_that_others_fulfil_is_seen(expression: str) -> None:
    assert not wants_machines_alone(expression)


def test_files_are_known_by_their_folder_or_their_marks(tmp_path: Path) -> None:
    tests = Path(__file__).parent
    assert may_have_machines(tests / "vm/test_sleep.py")
    assert may_have_machines(tests / "vmbackend/test_sleep_contract.py"), "marked by the parameter of a fixture"
    assert not may_have_machines(tests / "test_layout.py")
    for text, has in (("pytestmark = [pytest.mark.host]\n", True), ("vm = mark.hostile\n", False)):
        path = tmp_path / "test_it.py"
        path.write_text(text)
        assert may_have_machines(path) is has
