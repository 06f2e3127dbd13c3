"""Fill a database: an account with 100 workspaces and one with many. Prints their credentials as JSON.

python -m benchmarks.rows 100000
"""

from __future__ import annotations

import json
import sys
from typing import Any

import django

django.setup()

from accounts.services import account_create, workspaces_counted  # noqa: E402 Django must be set up first
from common.ids import new_id  # noqa: E402
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


if __name__ == "__main__":
    print(json.dumps({"few": fill("few", FEW), "many": fill("many", int(sys.argv[1]))}))
