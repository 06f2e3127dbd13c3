"""The users of `common.work`, as the contract suite sees them. A new app with long work is another one of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from accounts.models import Account
from cdn.models import File
from cdn.services import processing
from cdn.states import FileStatus
from certificates import services as certificates
from certificates.dispatcher import CertificateDispatcher
from certificates.leases import LEASE as CERTIFICATE_LEASE
from certificates.leases import claim_lease
from certificates.models import Certificate
from common.ids import new_id
from common.work.leases import ClaimLost, LeasedRow, new_claim
from notifications.content import Content
from notifications.models import Send, SendState
from notifications.sends import queue as sends
from notifications.sends.results import Tally
from notifications.sends.running import RunningSends
from notifications.tokens import SendTokenHolder
from pages.deploys import queue as deploys
from pages.deploys import sweep as deploys_sweep
from pages.models import PageDeploy
from pages.states import DeployState
from tests.cdn.received import received_file
from tests.notifications.rows import fcm_device, send_token
from tests.pages.rows import make_page
from tests.webhooks.sending import NOWHERE, make_subscription, publish
from tests.workspaces.rows import make_host, make_workspace
from webhooks import claims
from webhooks.attempts import Outcome
from webhooks.models import Attempt, Delivery, DeliveryStatus
from webhooks.outcomes import record_outcomes
from webhooks.sharing import InFlight
from workspaces.crud.services import workspace_delete
from workspaces.host.operation_shares import OperationShares
from workspaces.host.reconcile.operations import settle_orphaned_operations
from workspaces.models import Operation, Workspace
from workspaces.models.operation import LIVE
from workspaces.operations import queue as operations

PLACES = 4


class WorkUser(ABC):
    """One app. An owner is what a claim returned. `run`: the function of `killed_users` that does all of its work."""

    model: type[LeasedRow]
    run: str

    @abstractmethod
    def row_make(self, account: Account) -> str:
        """Work that is due; its key."""

    @abstractmethod
    def row_claim(self, key: str) -> Any:
        """The owner's view, or None."""

    @abstractmethod
    def owner_write(self, owner: Any) -> None:
        """Raises ClaimLost."""

    @abstractmethod
    def is_done(self, key: str) -> bool:
        """Whether its work has ended once, and as it should."""

    @abstractmethod
    def first_accounts(self) -> set[str]:
        """The accounts that PLACES places are given to, of all that is due."""

    def others_end(self) -> None:  # noqa: B027
        """End what was made before, so that it is not tried again."""

    def dead_settle(self) -> None:  # noqa: B027 - most have nothing
        """Do what makes work of a dead process due again, beside the end of its lease."""


class Deliveries(WorkUser):
    model, run = Delivery, "deliveries_run"

    def row_make(self, account: Account) -> str:
        make_subscription(account, NOWHERE)
        return publish(account)[0]

    def row_claim(self, key: str) -> Any:
        due, _ = claims.due_subscriptions(timezone.now())
        found = claims.claim_deliveries(due, InFlight(32))
        return next((each for each in found if each.id == key), None)

    def owner_write(self, owner: Any) -> None:
        if not record_outcomes([Outcome(owner, timezone.now(), 1, 500)]).written:
            raise ClaimLost

    def is_done(self, key: str) -> bool:
        """Nothing listens there: what it counts was attempted, and the next attempt may have come as well."""
        return Delivery.objects.get(pk=key).attempts == Attempt.objects.filter(delivery=key).count() > 0

    def first_accounts(self) -> set[str]:
        due, _ = claims.due_subscriptions(timezone.now())
        return {each.account_id for each in claims.claim_deliveries(due, InFlight(PLACES))}

    def others_end(self) -> None:
        Delivery.objects.update(status=DeliveryStatus.FAILED, next_attempt_at=None, claim="", lease_until=None)


class Sends(WorkUser):
    model, run = Send, "sends_run"

    def row_make(self, account: Account) -> str:
        fcm_device(account, new_id("dev"))
        token, _ = send_token(make_workspace(account))
        return str(sends.send_create(holder=SendTokenHolder(token), content=Content("t", "b", {})).pk)

    def row_claim(self, key: str) -> Any:
        return next((each for each in sends.claim_sends(new_claim(), {}, 100) if each.pk == key), None)

    def owner_write(self, owner: Any) -> None:
        sends.write_progress(owner, Tally.of(0, []))

    def is_done(self, key: str) -> bool:
        """Without credentials of a provider every device fails, and each is counted once."""
        row = Send.objects.get(pk=key)
        return (row.state, row.failed, row.content) == (SendState.ENDED, row.devices, None)

    def first_accounts(self) -> set[str]:
        begun: set[str] = set()
        running = RunningSends(new_claim(), PLACES, _Providers())  # type: ignore[arg-type]
        running.claim()
        running.begin(lambda _, fanout, *__: begun.add(fanout.send.account_id))
        return begun


class _Providers(dict[str, Any]):
    """Each pauses under one name."""

    def __missing__(self, key: str) -> Any:
        return self

    def pause_name(self, address: object) -> str:
        return "none"


class Certificates(WorkUser):
    """Names that are given up: no CA is asked for what is left to do."""

    model, run = Certificate, "certificates_run"

    def row_make(self, account: Account) -> str:
        name = f"{new_id('n').replace('_', '-')}.example.org"
        certificates.certificate_request([name], owner=account.pk)
        certificates.certificate_remove([name])
        return str(Certificate.objects.get(name=name).pk)

    def row_claim(self, key: str) -> Any:
        return claim_lease(key)

    def owner_write(self, owner: Any) -> None:
        CERTIFICATE_LEASE.write_row(owner, error="written")

    def is_done(self, key: str) -> bool:
        return not Certificate.objects.filter(pk=key).exists()

    def first_accounts(self) -> set[str]:
        dispatcher = CertificateDispatcher()
        dispatcher.begin = lambda work: None  # type: ignore[method-assign]
        for _ in range(2):  # an account whose share is full is left out of the next look
            dispatcher.run_pass()
        dispatcher._pool.shutdown()
        return set(dispatcher._running.values())


class Files(WorkUser):
    model, run = File, "files_run"

    def row_make(self, account: Account) -> str:
        return str(received_file(account, b"plain").pk)

    def row_claim(self, key: str) -> Any:
        return processing.processing_claim(key)

    def owner_write(self, owner: Any) -> None:
        processing.processing_heartbeat(owner)

    def is_done(self, key: str) -> bool:
        return bool(File.objects.get(pk=key).status == FileStatus.ACTIVE)

    def first_accounts(self) -> set[str]:
        return set(
            File.objects.filter(pk__in=processing.processing_due()[:PLACES]).values_list("account_id", flat=True)
        )


class Deploys(WorkUser):
    """Their workspace has been deleted, so each fails, once."""

    model, run = PageDeploy, "deploys_run"

    def row_make(self, account: Account) -> str:
        return str(deploys.enqueue_deploy(make_page(account), workspace_id="ws_gone", path="/site", actor="").pk)

    def row_claim(self, key: str) -> Any:
        return deploys.claim_deploy(key)

    def owner_write(self, owner: Any) -> None:
        deploys.write_facts(owner, step="written")

    def dead_settle(self) -> None:
        deploys_sweep.deploys_continue()

    def is_done(self, key: str) -> bool:
        row = PageDeploy.objects.get(pk=key)
        return (row.state, row.error_code) == (DeployState.FAILED, "not_found")

    def first_accounts(self) -> set[str]:
        found = [deploys.claim_next() for _ in range(PLACES)]
        return {each.page.account_id for each in found if each is not None}


class Operations(WorkUser):
    """Deletions of workspaces whose machines were never made."""

    model, run = Operation, "operations_run"

    def row_make(self, account: Account) -> str:
        row = make_workspace(account, host=make_host(settings.ENV.host_name))
        workspace_delete(workspace=row, actor="test")
        return str(Operation.objects.get(workspace=row).pk)

    def row_claim(self, key: str) -> Any:
        return operations.claim_operation(key, new_claim())

    def owner_write(self, owner: Any) -> None:
        operations.record_step(owner, "written")

    def dead_settle(self) -> None:
        settle_orphaned_operations(_NoRuntime())  # type: ignore[arg-type]

    def is_done(self, key: str) -> bool:
        """The row goes with its workspace."""
        return not Operation.objects.filter(pk=key).exists() and not Workspace.objects.exists()

    def first_accounts(self) -> set[str]:
        shares = OperationShares(PLACES)
        queued = Operation.objects.filter(state__in=LIVE).order_by("created_at")
        rows = queued.values_list("workspace__account_id", "pk")
        return {account for account, key in rows if shares.begin_operation(account, key)}


class _NoRuntime:
    """A vmhost that has no claims, as one that has just begun."""

    claims: frozenset[str] = frozenset()

    @property
    def queue_name(self) -> str:
        return make_host(settings.ENV.host_name).queue


USERS = [Deliveries(), Sends(), Certificates(), Files(), Deploys(), Operations()]
# A row's time that lies long ahead, whatever the user's lease.
LONG = timedelta(days=1)
