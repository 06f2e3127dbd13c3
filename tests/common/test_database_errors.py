"""A database that cannot store or cannot be reached: 503 in one place."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connection
from django.test import RequestFactory

from accounts.models import Credential
from common.database_errors import is_database_unavailable
from common.responses import as_domain_error, server_error
from tests.callers import Caller
from tests.full_database import full_database
from tests.workspaces.rows import make_workspace

LARGE = {"metadata": {"text": "x" * 60_000}}


def refused(answer: Any) -> tuple[int, str]:
    body = answer.json()
    assert body["success"] is False
    return answer.status_code, body["code"]


@pytest.mark.django_db(transaction=True)
def test_a_full_disk_of_the_database_is_503_and_nothing_is_stored(api: Caller) -> None:
    path = f"/workspace/{make_workspace(api.account).pk}/metadata"
    with full_database("workspaces_workspace"):
        answer = api.put(path, LARGE)
        assert refused(answer) == (503, "VM_UNAVAILABLE")
        assert answer.headers["Retry-After"]
        assert api.get(path).json()["metadata"] == {}
    assert api.put(path, LARGE).status_code == 200
    assert api.get(path).json()["metadata"] == LARGE["metadata"]


@pytest.mark.django_db(transaction=True)
def test_reading_needs_no_room_on_the_databases_disk(api: Caller) -> None:
    Credential.objects.update(last_used_at=None)
    with full_database("accounts_credential"):
        assert api.get("/workspace").status_code == 200


@pytest.mark.django_db
def test_a_query_that_is_wrong_is_not_a_full_disk() -> None:
    with pytest.raises(DatabaseError) as raised, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM there_is_no_such_table")
    assert not is_database_unavailable(raised.value)


@pytest.mark.django_db(transaction=True)
def test_a_server_that_only_reads_is_503(api: Caller) -> None:
    """During a fail-over."""
    path = f"/workspace/{make_workspace(api.account).pk}/metadata"
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        try:
            assert refused(api.put(path, {"metadata": {"text": "x"}})) == (503, "VM_UNAVAILABLE")
            assert api.get(path).json()["metadata"] == {}
        finally:
            cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE")


@pytest.mark.django_db(transaction=True)
def test_a_full_disk_behind_the_admins_pages_is_503() -> None:
    with full_database("accounts_plan"):
        try:
            with connection.cursor() as cursor:
                cursor.execute("UPDATE accounts_plan SET code = code")
        except OperationalError:
            answer = server_error(RequestFactory().get("/admin/"))
    assert (answer.status_code, json.loads(answer.content)["code"]) == (503, "VM_UNAVAILABLE")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
def test_a_full_disk_or_no_descriptor_below_a_file_of_the_platform_is_503(number: int) -> None:
    assert as_domain_error(OSError(number, "full")).status == 503
    assert as_domain_error(OSError(errno.EACCES, "refused")).status == 500
