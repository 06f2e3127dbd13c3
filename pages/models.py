"""Pages, their releases, deploys and audit entries. `services`, `publication` and `deploys` of this app write them.

The rows say which release is live and under which name; the files follow them (`pages.publication`).
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.audit import AccountEvent
from accounts.models import Account
from common.ids import new_id
from common.work.leases import CountedLeasedRow
from namespaces.models import Namespace
from pages.states import LIVE, DeploymentState, DeployState, PageStatus

NAME_LENGTH = 100
SLUG_LENGTH = 50
# Length of the reason that staff give (`staff.forms`).
REASON_LENGTH = 300


def new_page_id() -> str:
    return new_id("pg")


def new_deploy_id() -> str:
    return new_id("dep")


class Page(models.Model):
    """Site of static files at `<slug>.<domain>`. It outlives its workspace, of which it has the plain id.

    `release`: the number of the live release; null before the first deploy. `last_release`: the last number that was
    given out. `kept_bytes`: the bytes that its files take. `is_stale`: the files do not follow the row yet
    (`publication`). `published_slug`: the name that the files have; empty if they have none. `source_workspace_id`,
    `exported_path`: the source of the live release. `deployment_*`: the last deploy. `disabled_reason`: why staff have
    disabled the page; empty if they have not.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_page_id, editable=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="pages")
    namespace = models.ForeignKey(Namespace, on_delete=models.PROTECT, related_name="pages")
    name = models.CharField(max_length=NAME_LENGTH)
    # A label of a host name, so it is unique over all accounts.
    slug = models.CharField(max_length=SLUG_LENGTH, unique=True)
    domain = models.CharField(max_length=253)
    status = models.CharField(max_length=16, choices=PageStatus.choices, default=PageStatus.ACTIVE)
    disabled_reason = models.CharField(max_length=REASON_LENGTH, blank=True, default="")
    source_workspace_id = models.CharField(max_length=24)
    exported_path = models.TextField()
    release = models.PositiveIntegerField(null=True)
    last_release = models.PositiveIntegerField(default=0)
    kept_bytes = models.BigIntegerField(default=0)
    is_stale = models.BooleanField(default=False)
    published_slug = models.CharField(max_length=SLUG_LENGTH, blank=True, default="")
    deployment_state = models.CharField(
        max_length=16, choices=DeploymentState.choices, default=DeploymentState.DEPLOYING
    )
    deployment_error_code = models.CharField(max_length=64, blank=True, default="")
    deployment_error = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["account", "-created_at", "-id"], name="page_list"),
            models.Index(fields=["id"], condition=Q(is_stale=True), name="page_stale"),
        ]

    def __str__(self) -> str:
        return self.slug

    @property
    def deployment_failure(self) -> dict[str, Any] | None:
        """Return code and sentence of the last deploy's failure."""
        if not self.deployment_error_code:
            return None
        return {"code": self.deployment_error_code, "message": self.deployment_error}


class PageRelease(models.Model):
    """Kept release: the files that were exported at one time. It never changes. Its files are below the page's folder.

    `bytes`: the sum of its files' sizes. `skipped`: the entries that were left out of the folder, as `{path, reason}`,
    the first of `skipped_count`.
    """

    page = models.ForeignKey(Page, on_delete=models.CASCADE, related_name="releases")
    number = models.PositiveIntegerField()
    files = models.PositiveIntegerField()
    bytes = models.BigIntegerField()
    skipped = models.JSONField(default=list)
    skipped_count = models.PositiveIntegerField(default=0)
    source_workspace_id = models.CharField(max_length=24)
    exported_path = models.TextField()
    actor = models.CharField(max_length=160, blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["page", "number"], name="page_release_once")]

    def __str__(self) -> str:
        return f"release {self.number} of {self.page_id}"


class PageDeploy(CountedLeasedRow):
    """Deploy of a page, carried out by the worker `pages` in named steps. The row decides; a task only wakes it.

    At most one is live for each page. `reserved_bytes`: the bytes that it adds to the page's files, counted in those
    that the account keeps until the files exist. `release`: the number of the release that it has made; from then on it
    can only succeed. `payer_id`: the namespace whose credits it holds.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_deploy_id, editable=False)
    page = models.ForeignKey(Page, on_delete=models.CASCADE, related_name="deploys")
    workspace_id = models.CharField(max_length=24)
    path = models.TextField()
    actor = models.CharField(max_length=160, blank=True, default="")
    state = models.CharField(max_length=16, choices=DeployState.choices, default=DeployState.QUEUED)
    # The step being carried out, or the last one.
    step = models.CharField(max_length=40, blank=True, default="")
    reserved_bytes = models.BigIntegerField(default=0)
    payer_id = models.CharField(max_length=24, blank=True, default="")
    release = models.PositiveIntegerField(null=True)
    error_code = models.CharField(max_length=64, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    error_details = models.JSONField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    # When the worker was last notified of it.
    notified_at = models.DateTimeField(default=timezone.now)
    # After this time the worker fails the deploy, whichever process owns the claim. Both are times of the database's
    # clock.
    deadline_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["page"], condition=Q(state__in=LIVE), name="one_live_deploy_per_page"),
        ]
        indexes = [
            models.Index(fields=["state", "deadline_at"], condition=Q(state__in=LIVE), name="page_deploy_live"),
            # Used by lists that staff filter.
            models.Index(fields=["workspace_id", "-id"], name="page_deploy_of_workspace"),
            models.Index(fields=["state", "-id"], name="page_deploy_by_state"),
        ]

    def __str__(self) -> str:
        return f"deploy of {self.page_id} ({self.state})"

    @property
    def is_live(self) -> bool:
        return self.state in LIVE


class PageEvent(AccountEvent):
    """Audit entry of a page."""

    subject_field = "page_id"

    page_id = models.CharField(max_length=24)

    class Meta(AccountEvent.Meta):
        indexes = [
            *AccountEvent.Meta.indexes,
            models.Index(fields=["page_id", "-id"], name="pageevent_of_page"),
        ]
