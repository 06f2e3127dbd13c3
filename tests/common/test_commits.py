"""Calls after a commit: an error of one is logged, and changes nothing for the request and for other calls."""

from __future__ import annotations

from functools import partial

import pytest
from django.db import transaction

from common.commits import call_after_commit

pytestmark = pytest.mark.django_db(transaction=True)


def fail(reason: str) -> None:
    raise ValueError(reason)


def test_an_error_after_the_commit_is_logged_by_name(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []
    with transaction.atomic():
        call_after_commit(fail, "of a function")
        call_after_commit(partial(fail, reason="of a partial"))
        call_after_commit(seen.append, 1)
        assert seen == []
    assert seen == [1]
    messages = [record.getMessage() for record in caplog.records]
    assert [text.rpartition("(")[2] for text in messages] == ["of a function).", "of a partial)."]
    assert "Error calling fail in on_commit()" in messages[0]


def test_nothing_is_called_where_the_transaction_is_rolled_back() -> None:
    seen: list[int] = []
    with transaction.atomic():
        call_after_commit(seen.append, 1)
        transaction.set_rollback(True)
    assert seen == []
