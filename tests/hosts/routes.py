"""The routes of hosts, as entries of the route walk (tests/routes.py)."""

from __future__ import annotations

from tests.route import Route

ROUTES: list[Route] = []
# By tokens of staff (tests/hosts/test_staff_routes.py), by the token of a join (tests/hosts/test_joins.py).
NOT_WALKED = {"staff/hosts/tokens", "staff/hosts/{host_id}", "join/hosts", "join/ca"}
VALUES = {"host_id": "host_22222222222222aa"}
