"""Lists of many snapshots."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.callers import Caller
from tests.workspaces.rows import make_host, make_workspace, snapshot_row
from workspaces.models import Snapshot

pytestmark = pytest.mark.django_db


def test_the_number_of_queries_does_not_depend_on_the_rows(api: Caller) -> None:
    workspace = make_workspace(api.account, host=make_host())
    api.get("/snapshots")  # the first request reads more
    counts = []
    for more in (20, 9980):
        Snapshot.objects.bulk_create([snapshot_row(workspace) for _ in range(more)], batch_size=1000)
        for path in ("/snapshots?limit=100", f"/workspace/{workspace.pk}/snapshots?limit=100"):
            with CaptureQueriesContext(
                connection,
            ) as seen:
                body = api.get(path).json()
            counts.append(len(seen))
    assert (body["total"], len(body["snapshots"])) == (10_000, 100)
    assert counts[:2] == counts[2:]


def test_rows_are_counted_in_their_index_alone(api: Caller) -> None:
    Snapshot.objects.bulk_create([snapshot_row(make_workspace(api.account, host=make_host()))])
    with CaptureQueriesContext(connection) as seen:
        body = api.get("/snapshots").json()
    (counting,) = (query["sql"] for query in seen if "COUNT(*) AS" in query["sql"])
    assert "JOIN" not in counting
    assert body["snapshots"][0]["namespace"] == api.account.namespaces.get().slug
