"""A credential that has ended is answered as one that never was: equal status, headers and text, for every kind.

Where the specification demands another answer for a former one (sandbox tokens: 403), the kind's own tests have it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from accounts import tokens
from accounts.actors import Actor
from accounts.models import Account, Credential
from accounts.scopes import Scope, ScopeBinding
from accounts.services import credential_end, credential_issue, credential_remove
from assist.services import api_key_create, api_key_delete
from cdn.models import Permit
from notifications.tokens import token_delete, token_revoke
from tests.callers import Caller
from tests.cdn.rows import make_permit
from tests.notifications.rows import send_token
from tests.sandboxes.rows import make_sandbox
from tests.test_isolation import OWN_HEADERS
from tests.workspaces.network.edge_requests import ask as ask_edge
from tests.workspaces.network.link_requests import by_bearer, name_of, secret_of
from tests.workspaces.rows import make_workspace
from workspaces.models import PortLink, PublicPort, StreamToken, Workspace
from workspaces.network.links import link_revoke
from workspaces.states import Status
from workspaces.streams.staff_tokens import stream_token_create

# Committed: some routes read rows in threads of their own.
pytestmark = pytest.mark.django_db(transaction=True)
Ask = Callable[[str], Any]
REFUSED = (401, 403, 404)


@dataclass
class Kind:
    """`ask`: a request by a credential. `ended`: those that have ended, once each was let in; beside them one that was
    never issued.
    """

    ask: Ask
    ended: list[str]

    def __post_init__(self) -> None:
        for credential in self.ended:
            answer = self.ask(credential)
            assert answer.status_code not in REFUSED, (credential, answer.content)

    @property
    def all(self) -> list[str]:
        return [changed(self.ended[0]), *self.ended]


def bearer(method: str, path: str) -> Ask:
    def ask(token: str) -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        return Client().generic(method, path, '{"title": "x"}', content_type="application/json", headers=headers)

    return ask


def changed(token: str) -> str:
    """A token of the same form that was never issued."""
    return token[:-3] + ("AAA" if token[-3:] != "AAA" else "QQQ")


def deactivated(account: Account) -> None:
    Account.objects.filter(pk=account.pk).update(is_active=False)


def client_credentials(api: Caller, stranger: Caller) -> Kind:
    rotated, deleted = (
        credential_issue(account=api.account, name="x", scope=Scope.ACCOUNT, binding=ScopeBinding()) for _ in range(2)
    )
    pairs = [(each.credential.client_id, each.secret) for each in (rotated, deleted)]
    pairs.append((stranger.client_id, stranger.secret))

    def ask(pair: str) -> Any:
        client_id, _, secret = pair.partition(" ")
        return Client().get("/workspace", headers={"X-Client-ID": client_id, "X-Client-Secret": secret})

    kind = Kind(ask, [" ".join(pair) for pair in pairs])
    credential_end(rotated.credential)
    credential_remove(deleted.credential)
    deactivated(stranger.account)
    kind.ended += ["cli_unknown x", f"{api.client_id} {stranger.secret}"]
    return kind


def access_tokens(api: Caller, stranger: Caller) -> Kind:
    def minted(caller: Caller, ttl: int = 900) -> str:
        credential = Credential.objects.get(client_id=caller.client_id)
        actor = Actor(caller.account, Scope.ACCOUNT, credential.pk, "t")
        return tokens.mint_token(actor=actor, scope=Scope.ACCOUNT, binding=ScopeBinding(), ttl=ttl, label="").token

    kind = Kind(bearer("GET", "/workspace"), [minted(api), minted(stranger)])
    kind.ended += [minted(api, ttl=-1), "nonsense"]
    credential_end(Credential.objects.get(client_id=api.client_id))
    deactivated(stranger.account)
    return kind


def send_tokens(api: Caller, stranger: Caller) -> Kind:
    accounts = [api.account, api.account, api.account, stranger.account]
    revoked, deleted, orphan, inactive = (send_token(make_workspace(account)) for account in accounts)
    kind = Kind(bearer("POST", "/notifications/send"), [made[1] for made in (revoked, deleted, orphan, inactive)])
    token_revoke(token=revoked[0], actor="test")
    token_delete(token=deleted[0], actor="test")
    Workspace.objects.filter(pk=orphan[0].workspace_id).update(status=Status.DELETING)
    deactivated(stranger.account)
    return kind


def api_keys(api: Caller, stranger: Caller) -> Kind:
    deleted, inactive = (
        api_key_create(account=caller.account, name="x", namespace=None, actor="test") for caller in (api, stranger)
    )
    kind = Kind(bearer("POST", "/v1/blurs/generate"), [deleted.key, inactive.key])
    api_key_delete(api_key=deleted.api_key, actor="test")
    deactivated(stranger.account)
    return kind


def sandbox_tokens(api: Caller, stranger: Caller) -> Kind:
    boxes = [make_sandbox(caller.account, status=Status.STOPPED) for caller in (api, stranger)]
    of = {token: sandbox.pk for sandbox, token in boxes}

    def ask(token: str) -> Any:
        return bearer("POST", f"/s/{of.get(token, 'sbx_none')}/files/list")(token)

    kind = Kind(ask, list(of))
    Workspace.objects.filter(pk=boxes[0][0].workspace_id).update(status=Status.DELETING)
    deactivated(stranger.account)
    return kind


def stream_tokens_of_staff(api: Caller, stranger: Caller) -> Kind:
    row = make_workspace(api.account, status=Status.STOPPED)
    create = get_user_model().objects.create_superuser
    expired, dismissed, inactive, deleted = users = [create(f"staff{number}") for number in range(4)]
    made = [stream_token_create(workspace=row, user=user, actor="staff") for user in users]  # type: ignore[arg-type]
    kind = Kind(bearer("GET", f"/workspace/{row.pk}/logs/stream/cmd"), made)
    StreamToken.objects.filter(user=expired).update(expires_at=timezone.now() - timedelta(seconds=1))
    get_user_model().objects.filter(pk=dismissed.pk).update(is_staff=False)
    get_user_model().objects.filter(pk=inactive.pk).update(is_active=False)
    deleted.delete()
    return kind


def upload_addresses(api: Caller, stranger: Caller) -> Kind:
    expired, cancelled, _ = made = [make_permit(caller.account) for caller in (api, api, stranger)]
    kind = Kind(lambda token: Client().head(f"/cdn/uploads/{token}"), [each.token for each in made])
    Permit.objects.filter(pk=expired.permit.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    api.delete(f"/cdn/files/{cancelled.file.pk}")
    deactivated(stranger.account)
    return kind


def links_to_private_ports(api: Caller, stranger: Caller) -> Kind:
    fields = {"ip": "10.200.0.9", "public_access": True, "published_ports": 1}
    row = make_workspace(api.account, **fields)
    port = PublicPort.objects.create(workspace=row, port=8080, access="private")
    secrets = [secret_of(port) for _ in range(3)]
    kind = Kind(lambda secret: ask_edge(name_of(port), **by_bearer(secret)), secrets)
    ids = [link.pk for link in PortLink.objects.order_by("id")]
    link_revoke(workspace=row, actor="test", port=8080, link_id=ids[0])
    PortLink.objects.filter(pk=ids[1]).update(expires_at=timezone.now() - timedelta(seconds=1))
    PortLink.objects.filter(pk=ids[2]).delete()
    return kind


KINDS: dict[Callable[[Caller, Caller], Kind], int] = {
    client_credentials: 401,
    access_tokens: 401,
    send_tokens: 401,
    api_keys: 401,
    sandbox_tokens: 401,
    stream_tokens_of_staff: 401,
    upload_addresses: 404,
    links_to_private_ports: 401,
}


def shown(answer: Any) -> tuple[int, dict[str, str], str]:
    """What the caller sees, without what names the request or the second."""
    headers = {name: re.sub(r"t=\d+", "t=", value) for name, value in answer.items() if name not in OWN_HEADERS}
    return answer.status_code, headers, answer.content.decode().replace(answer["X-Request-ID"], "REQUEST")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_credential_that_has_ended_is_as_one_that_never_was(
    api: Caller, stranger: Caller, kind: Callable[[Caller, Caller], Kind]
) -> None:
    made = kind(api, stranger)
    answers = [shown(made.ask(credential)) for credential in made.all]
    assert all(answer == answers[0] for answer in answers), answers
    assert answers[0][0] == KINDS[kind], answers[0]
