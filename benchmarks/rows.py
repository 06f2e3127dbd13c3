"""Fill a database: an account with 100 workspaces and one with many. Prints their credentials as JSON.

python -m benchmarks.rows 100000

Or, with the fake driver, an account with running machines:

python -m benchmarks.rows --guests 4
"""

from __future__ import annotations

import json
import sys
from typing import Any

import django

django.setup()

from django.db import connection  # noqa: E402 Django must be set up first
from django.utils import timezone  # noqa: E402 Django must be set up first

from accounts.services import account_create, workspaces_counted  # noqa: E402
from common.ids import new_id  # noqa: E402
from vmbackend.backend import machines_dir  # noqa: E402
from vmbackend.driver import Boot, MachineSpec  # noqa: E402
from vmbackend.fake.driver import FakeDriver  # noqa: E402
from workspaces.models import Workspace  # noqa: E402

FEW = 100


def fill(name: str, count: int) -> dict[str, Any]:
    """One account with `count` stopped workspaces; its headers and the id of one of them."""
    account, made = account_create(name=name, plan="scale")
    namespace = account.namespaces.get()
    rows = (
        Workspace(
            id=new_id("ws"),
            account=account,
            namespace=namespace,
            name=f"workspace {number}",
            slug=f"workspace-{number}",
            image="docker.io/library/ubuntu:24.04",
            cpu_millis=1000,
            memory_mb=512,
            disk_size_mb=512,
            applied_cpu_millis=1000,
            applied_memory_mb=512,
            applied_disk_size_mb=512,
            status="stopped",
            provisioning_state="ready",
            env={},
            workloads=[],
        )
        for number in range(count)
    )
    Workspace.objects.bulk_create(rows, batch_size=1000)
    workspaces_counted(account, count)
    newest = Workspace.objects.filter(account=account).order_by("-created_at").values_list("pk", flat=True).first()
    headers = {"X-Client-ID": made.credential.client_id, "X-Client-Secret": made.secret}
    return {"id": newest, "headers": headers}


def running(count: int) -> dict[str, Any]:
    """An account with `count` running workspaces and their fake machines; its headers and their ids."""
    made = fill("guests", count)
    driver = FakeDriver(machines_dir())
    ids = list(Workspace.objects.filter(account__name="guests").values_list("pk", flat=True))
    for number, workspace_id in enumerate(ids):
        identity = driver.prepare(
            MachineSpec(workspace_id, "sha256:x", 1, 128, 64, f"10.0.0.{number + 2}", Boot(workspace_id))
        )
        driver.start(workspace_id)
        Workspace.objects.filter(pk=workspace_id).update(
            status="running",
            ready=True,
            started_at=timezone.now(),
            ip=identity.ip,
            control_port=identity.control_port,
            ssh_host_key=identity.ssh_host_key,
        )
    return {"headers": made["headers"], "ids": ids}


if __name__ == "__main__":
    if sys.argv[1] == "--guests":
        print(json.dumps(running(int(sys.argv[2]))))
        sys.exit()
    made = {"few": fill("few", FEW), "many": fill("many", int(sys.argv[1]))}
    # As autovacuum does within a minute; without statistics a list sorts all rows of the account.
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    print(json.dumps(made))
