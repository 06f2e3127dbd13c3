"""Which commit is upgraded from, and which environment its checkout gets."""

from __future__ import annotations

from importlib import metadata

import pytest

from tests.upgrade.release import commit_of, has_packages

PIN = f"Django_Storages=={metadata.version('django-storages')} \\\n    --hash=sha256:00\n"


def test_an_environment_fits_a_lock_whose_packages_it_has_in_their_versions() -> None:
    assert has_packages(f"# a comment==1\n{PIN}")
    assert not has_packages(f"{PIN}django-storages==0.0.1 \\\n")
    assert not has_packages(f"{PIN}no-such-package==1.0\n")


@pytest.mark.parametrize("reference", ["no-such-reference", "--all", ""])
def test_what_is_no_commit_is_refused(reference: str) -> None:
    with pytest.raises(ValueError, match="There is no commit"):
        commit_of(reference)
