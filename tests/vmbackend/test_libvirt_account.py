"""The account that libvirt looks up is made once, also by processes that do so at the same time."""

from __future__ import annotations

import pwd
from collections.abc import Sequence
from typing import Any

import pytest

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt import account


class Accounts:
    """Those of a host without the account. `others_first`: another process makes it just before."""

    def __init__(self, *, failures: int, others_first: bool = False) -> None:
        self.failures, self.others_first = failures, others_first
        self.known, self.calls = False, 0

    def getpwnam(self, name: str) -> Any:
        if not self.known:
            raise KeyError(name)
        return None

    def useradd(self, command: Sequence[str]) -> str:
        self.calls += 1
        self.known = self.others_first or self.calls > self.failures
        if self.calls <= self.failures:
            raise BackendUnavailable("The host's program useradd failed.")
        return ""


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> Any:
    def of(**values: Any) -> Accounts:
        made = Accounts(**values)
        monkeypatch.setattr(pwd, "getpwnam", made.getpwnam)
        monkeypatch.setattr(account, "run_tool", made.useradd)
        monkeypatch.setattr(account.time, "sleep", lambda seconds: None)
        monkeypatch.setattr(account.os, "geteuid", lambda: 0)
        return made

    return of


@pytest.mark.parametrize("failures", [0, 1, 9])
def test_it_is_made_where_the_lock_is_free_at_last(accounts: Any, failures: int) -> None:
    made = accounts(failures=failures)
    account.ensure_account()
    assert (made.known, made.calls) == (True, failures + 1)
    account.ensure_account()
    assert made.calls == failures + 1


def test_one_that_another_process_made_is_enough(accounts: Any) -> None:
    made = accounts(failures=1, others_first=True)
    account.ensure_account()
    assert made.calls == 1


def test_a_host_that_makes_none_is_an_error(accounts: Any) -> None:
    made = accounts(failures=99)
    with pytest.raises(BackendUnavailable, match="useradd failed"):
        account.ensure_account()
    assert made.calls == account.ATTEMPTS
