"""The routes of hosts, as entries of the route walk (tests/routes.py)."""

from __future__ import annotations

from tests.route import Route

ROUTES: list[Route] = []
# By tokens of staff (tests/hosts/test_staff_routes.py), by the token of a join (tests/hosts/test_joins.py).
ONE = "staff/hosts/{host_id}"
ACTS = {f"{ONE}/{act}" for act in ("drain", "activate", "maintenance", "give-up")}
MOVE = "staff/workspaces/{workspace_id}/move"
# tests/hosts/test_orphan_routes.py
ORPHANS = {f"{ONE}/orphans", f"{ONE}/orphans/{{workspace_id}}", f"{ONE}/orphans/{{workspace_id}}/put-back"}
NOT_WALKED = {"staff/hosts", "staff/hosts/tokens", ONE, MOVE, "join/hosts", "join/ca"} | ACTS | ORPHANS
VALUES = {"host_id": "host_22222222222222aa"}
