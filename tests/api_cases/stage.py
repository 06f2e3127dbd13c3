"""An account with one of everything that paths name, a running workspace and a running sandbox among them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from django.test import Client

from accounts.services import account_create
from assist.services import api_key_create
from cdn.services import permits
from domains.models import CustomDomain
from domains.services import domain_disconnect
from namespaces.models import Namespace
from pages.models import Page
from pages.publication import remove_files
from pages.services import page_delete
from tests.callers import Caller
from tests.hosts.rows import staff_token
from tests.notifications.rows import send_token
from tests.sandboxes.rows import make_sandbox, sandbox_of
from tests.threads import wait_until
from tests.workspaces.rows import runtime_token
from tests.world import World
from workspaces.models import Operation, Workspace
from workspaces.models.operation import LIVE
from workspaces.models.workspace import Kind
from workspaces.states import Status

# A stage is used for so many cases at most.
STAGE_CASES = 300
_numbers = count(1)
# What would be run by the fake driver, on this host: these get a sandbox that does not run.
NOT_RUN = ("/s/{sandbox_id}/git/", "/s/{sandbox_id}/terminal")


@dataclass
class Stage:
    """`ids`: a value for each placeholder. `secrets`: by security scheme, the value of its header."""

    owner: Caller
    ids: dict[str, str]
    secrets: dict[str, str]
    stopped: dict[str, str]

    def values(self, path: str) -> dict[str, str]:
        return self.ids | ({"sandbox_id": self.stopped["id"]} if path.startswith(NOT_RUN) else {})

    def renew(self, method: str, path: str) -> None:
        """What a success has used up, which is no reason for a new stage."""
        if "{token}" in path and method in ("patch", "put"):
            self.ids["token"] = _upload(self.owner.account)

    def leave(self) -> None:
        """Its machines go, and what has a name that is unique to all accounts, with its files; other rows stay."""
        for domain in CustomDomain.objects.filter(account=self.owner.account):
            domain_disconnect(domain=domain, actor="test")
        for page in Page.objects.filter(account=self.owner.account):
            remove_files(page_delete(page=page, actor="test"))
        for workspace in Workspace.objects.filter(account=self.owner.account, status=Status.RUNNING):
            self.owner.delete(f"/workspace/{workspace.pk}")
        live = Operation.objects.filter(account_id=self.owner.account.pk, state__in=LIVE)
        with suppress(AssertionError):
            wait_until(lambda: not live.exists())
        stuck = live.values("kind", "state", "step", "attempt", "claim", "cancel_requested", "lease_until")
        assert list(stuck) == [], "no operation is forgotten"

    def headers(self, path: str, security: list[dict[str, Any]], *, runs: bool = False) -> dict[str, str]:
        """What the operation asks for: the first of its options. `runs`: by the running sandbox in any case."""
        schemes = security[0] if security else {}
        if "clientId" in schemes:
            return self.owner.headers
        for scheme in schemes:
            token = self.stopped["token"] if path.startswith(NOT_RUN) and not runs else self.secrets[scheme]
            return {"Authorization": f"Bearer {token}"}
        return {}


class Stages:
    """The stage of now, which is used for some cases, or until one of them has deleted something of it.

    `env`: the environment of its machines.
    """

    def __init__(self, env: dict[str, str] | None = None) -> None:
        self._env = env or {}
        self._stage: Stage | None = None
        self._left = 0

    def current(self) -> Stage:
        if self._stage is None or self._left <= 0:
            self.end()
            self._stage, self._left = new_stage(self._env), STAGE_CASES
        self._left -= 1
        return self._stage

    def last(self) -> Stage:
        """The one that `current` returned."""
        assert self._stage is not None
        return self._stage

    def note(self, method: str, status: int) -> None:
        """What was created counts against the limits of the account, whose rate of calls may be used up."""
        if status == 429:
            self._left = 0
        if status < 300:
            self._left -= {"delete": STAGE_CASES, "get": 0}.get(method, 1)

    def end(self) -> None:
        if self._stage is not None:
            self._stage.leave()
            self._stage = None


def new_stage(env: dict[str, str]) -> Stage:
    """Another account than before, so that nothing of earlier cases is in its way."""
    number = next(_numbers)
    account, made = account_create(name=f"stage {number}", plan="pro")
    owner = Caller(Client(), account, made.credential.client_id, made.secret)
    world = World.of(owner)
    running, boxed = (_running(owner, f"stage-{number}-{name}", env) for name in ("workspace", "sandbox"))
    Workspace.objects.filter(pk=boxed).update(kind=Kind.SANDBOX)
    sandbox, token = sandbox_of(Workspace.objects.get(pk=boxed))
    idle, idle_token = make_sandbox(account, status=Status.STOPPED, slug=f"stage-{number}-idle")
    secrets = {
        "sandboxToken": token,
        "runtimeToken": runtime_token(Workspace.objects.get(pk=running)),
        "apiKey": api_key_create(account=account, name="stage", namespace=None, actor="test").key,
        "sendToken": send_token(Workspace.objects.get(pk=running))[1],
        "staffToken": staff_token(),
        "uploadToken": owner.post("/cdn/token", {}).json()["token"],
    }
    ids = world.ids | {"workspace_id": running, "sandbox_id": sandbox.pk, "token": _upload(account)}
    return Stage(owner, ids, secrets, {"id": idle.pk, "token": idle_token})


def _running(owner: Caller, slug: str, env: dict[str, str]) -> str:
    """The id of a new workspace, which runs; a vmhost of this process must be there (fixture `vmhost`)."""
    config = {"memory_mb": 128, "env": [{"key": key, "value": value} for key, value in env.items()]}
    answer = owner.post("/workspace", {"slug": slug, "config": config})
    assert answer.status_code == 201, answer.content
    return str(answer.json()["workspace"]["id"])


def _upload(account: Any) -> str:
    """The token of an address to which a file of three bytes is sent."""
    default = Namespace.objects.get(account=account, is_default=True)
    return permits.permit_create(account=account, new=permits.NewFile(default, "a.txt", 3), actor="test").token
