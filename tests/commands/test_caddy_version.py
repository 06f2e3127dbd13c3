"""Which Caddy `make doctor` accepts for the edge."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.conftest import CADDY
from vmbackend.hostcheck import check_caddy


def test_the_installed_caddy_is_accepted() -> None:
    assert check_caddy(Path(CADDY)).found


@pytest.mark.parametrize(
    ("says", "accepted"),
    [
        ("2.6.2", False),
        ("v2.10.2 h1:abc=", False),
        ("v2.11.3 h1:abc=", False),
        ("v2.11.4", True),
        ("v2.12.0-beta.1 h1:abc=", True),
        ("v3.0.0", True),
        ("nonsense", False),
        ("", False),
    ],
)
def test_releases_that_mix_bodies_are_refused(tmp_path: Path, says: str, accepted: bool) -> None:
    program = tmp_path / "caddy"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    finding = check_caddy(program)
    assert (finding.found, finding.fix) == (accepted, "" if accepted else "make setup")
    assert finding.needed


def test_a_missing_caddy_is_a_finding(tmp_path: Path) -> None:
    assert not check_caddy(tmp_path / "caddy").found
