"""A valid credential of each kind that the platform has, all of one account."""

from __future__ import annotations

from assist.services import api_key_create
from tests.hosts.rows import staff_token
from tests.notifications.rows import send_token
from tests.routes import VALUES
from tests.sandboxes.rows import make_sandbox
from tests.workspaces.rows import make_workspace, runtime_token
from tests.world import World
from workspaces.states import Status

# Named as the OpenAPI document names them.
KINDS = [
    "none",
    "clientId",
    "accessToken",
    "apiKey",
    "sandboxToken",
    "runtimeToken",
    "sendToken",
    "uploadToken",
    "staffToken",
]


def headers_by_kind(world: World) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The headers of each kind, and what paths name: things that the account has. `sandbox_id` is the token's. Once in
    a test.
    """
    account = world.owner.account
    sandbox, sandbox_token = make_sandbox(account, status=Status.STOPPED, slug="of-a-holder")
    bearers = {
        "accessToken": world.token(),
        "apiKey": api_key_create(account=account, name="other", namespace=None, actor="test").key,
        "sandboxToken": sandbox_token,
        "runtimeToken": runtime_token(make_workspace(account, status=Status.STOPPED)),
        "sendToken": send_token(world.workspace)[1],
        "staffToken": staff_token(),
        "uploadToken": world.owner.post("/cdn/token", {}).json()["token"],
    }
    headers = {kind: {"Authorization": f"Bearer {token}"} for kind, token in bearers.items()}
    ids = VALUES | world.ids | {"sandbox_id": sandbox.pk, "token": "x"}
    return {"none": {}, "clientId": world.owner.headers, **headers}, ids
