"""Files of the CDN, their permits, the limits that they are checked against, and the counters of their bytes.

Only `cdn.services` and `cdn.pools` write them.
"""

from __future__ import annotations

from django.core.validators import MaxValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.audit import AccountEvent
from accounts.models import Account, Plan
from cdn.states import FileStatus, Kind, PermitState, PoolKind
from common.ids import new_id
from common.prefix_keys import PrefixKey
from common.work.leases import CountedLeasedRow
from namespaces.models import Namespace

# Every client of JSON reads whole numbers up to here exactly; sums of some thousand fit into a column.
MAX_BYTES = 2**53 - 1


def new_file_id() -> str:
    return new_id("file")


class BytesField(models.PositiveBigIntegerField):  # type: ignore[type-arg]  # Django has none at run time
    """Column for a number of bytes."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("validators", [MaxValueValidator(MAX_BYTES)])
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    def deconstruct(self) -> tuple[str, str, list[object], dict[str, object]]:
        """Return the field for migrations, which need no validators."""
        name, path, args, kwargs = super().deconstruct()
        kwargs.pop("validators", None)
        return name, path, list(args), kwargs


class PlanLimits(models.Model):
    """Ceiling of each account with a plan. `policy`: see `cdn.policy`; a field that is absent has no ceiling."""

    plan = models.OneToOneField(Plan, on_delete=models.CASCADE, primary_key=True, related_name="cdn_limits")
    max_bytes = BytesField(help_text="Stored bytes: files, their variants, and the trash.")
    monthly_bytes = BytesField(help_text="Bytes published in a calendar month (UTC).")
    policy = models.JSONField(default=dict, blank=True)

    class Meta:
        verbose_name_plural = "plan limits"

    def __str__(self) -> str:
        return f"CDN limits of {self.plan_id}"


class Template(models.Model):
    """Limits that each namespace of an account inherits (`/cdn/quota-defaults`). Null: the plan's limit."""

    account = models.OneToOneField(Account, on_delete=models.CASCADE, primary_key=True, related_name="cdn_template")
    cdn_max_bytes = BytesField(null=True)
    cdn_monthly_bytes = BytesField(null=True)
    policy = models.JSONField(null=True)

    def __str__(self) -> str:
        return f"CDN template of {self.account_id}"


class NamespaceQuota(models.Model):
    """Limits of a namespace in place of the account's template. Null: the template's limit."""

    namespace = models.OneToOneField(Namespace, on_delete=models.CASCADE, primary_key=True, related_name="cdn_quota")
    cdn_max_bytes = BytesField(null=True)
    cdn_monthly_bytes = BytesField(null=True)
    policy = models.JSONField(null=True)

    def __str__(self) -> str:
        return f"CDN quota of {self.namespace_id}"


class Pool(models.Model):
    """Counters of one account, one namespace, or an account's files without one.

    `owner`: the account's or the namespace's id, or `personal_` and the account's id. An account's pool is the sum of
    its others. `stored_*` counts active files, `reserved_*` files that are not published yet. `month`: the month of
    `month_*`, which count publications; in a later month they are 0. `open_permits`: permits that take bytes.
    """

    owner = models.CharField(max_length=40, primary_key=True)
    kind = models.CharField(max_length=16, choices=PoolKind.choices)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="+")
    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, null=True, related_name="+")
    month = models.CharField(max_length=7, default="")
    stored_bytes = models.PositiveBigIntegerField(default=0)
    stored_files = models.PositiveBigIntegerField(default=0)
    trashed_bytes = models.PositiveBigIntegerField(default=0)
    trashed_files = models.PositiveBigIntegerField(default=0)
    reserved_bytes = models.PositiveBigIntegerField(default=0)
    reserved_files = models.PositiveBigIntegerField(default=0)
    rejected_files = models.PositiveBigIntegerField(default=0)
    month_bytes = models.PositiveBigIntegerField(default=0)
    month_files = models.PositiveBigIntegerField(default=0)
    open_permits = models.PositiveBigIntegerField(default=0)

    def __str__(self) -> str:
        return f"CDN pool of {self.owner}"


class File(CountedLeasedRow):
    """File from its permit to its deletion.

    `claimed_type` is the client's claim. `kind` is that of the claim until the bytes were inspected; `content_type` and
    `extension` are empty until then. `size`: the announced size, then the received one. `footprint`: the bytes of the
    original and its variants, from publication on. A process that works on the file has claimed it. `delivered`: it was
    delivered once, so that no credits are needed any more. `purge`: its deletion was asked for.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_file_id, editable=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+", db_index=False)
    namespace = models.ForeignKey(Namespace, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    status = models.CharField(max_length=16, choices=FileStatus.choices, default=FileStatus.UPLOADING)
    filename = models.CharField(max_length=255)
    claimed_type = models.CharField(max_length=255, blank=True, default="")
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.OTHER)
    content_type = models.CharField(max_length=127, blank=True, default="")
    extension = models.CharField(max_length=16, blank=True, default="")
    size = models.PositiveBigIntegerField()
    footprint = models.PositiveBigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, blank=True, default="")
    width = models.PositiveIntegerField(null=True)
    height = models.PositiveIntegerField(null=True)
    duration_seconds = models.FloatField(null=True)
    tags = models.JSONField(default=list)
    metadata = models.JSONField(default=dict)
    variants_wanted = models.JSONField(default=dict)
    error = models.JSONField(null=True)
    delivered = models.BooleanField(default=False)
    purge = models.BooleanField(default=False)
    # Actor who asked for the permit.
    actor = models.CharField(max_length=160, blank=True, default="")
    # After this time a file that is still processed is rejected.
    deadline_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    published_at = models.DateTimeField(null=True)
    trashed_at = models.DateTimeField(null=True)
    rejected_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["account", "-id"], name="cdn_file_of_account"),
            models.Index(fields=["namespace", "-id"], name="cdn_file_of_namespace"),
            models.Index(fields=["kind", "-id"], name="cdn_file_by_kind"),
            models.Index(PrefixKey("filename"), "id", name="cdn_file_begins"),  # for the admin's search
            models.Index(
                fields=["account", "-created_at", "-id"], condition=~Q(status="trashed"), name="cdn_file_account"
            ),
            models.Index(
                fields=["namespace", "-created_at", "-id"], condition=~Q(status="trashed"), name="cdn_file_namespace"
            ),
            models.Index(
                fields=["account", "-created_at", "-id"],
                condition=Q(namespace=None) & ~Q(status="trashed"),
                name="cdn_file_personal",
            ),
            models.Index(
                fields=["account", "-created_at", "-id"], condition=Q(status="trashed"), name="cdn_trash_account"
            ),
            models.Index(
                fields=["namespace", "-created_at", "-id"], condition=Q(status="trashed"), name="cdn_trash_namespace"
            ),
            models.Index(
                fields=["account", "-created_at", "-id"],
                condition=Q(namespace=None, status="trashed"),
                name="cdn_trash_personal",
            ),
            models.Index(
                fields=["account", "status", "-created_at"],
                condition=Q(status__in=["uploading", "processing", "rejected"]),
                name="cdn_file_unfinished",
            ),
            models.Index(fields=["-id"], condition=Q(status="trashed"), name="cdn_file_trashed"),  # the admin's list
            # For sweeps.
            models.Index(fields=["lease_until"], condition=Q(status="processing"), name="cdn_file_processing"),
            models.Index(fields=["rejected_at"], condition=Q(status="rejected"), name="cdn_file_rejected"),
            models.Index(fields=["id"], condition=Q(purge=True), name="cdn_file_purge"),
        ]

    def __str__(self) -> str:
        return self.filename


class Variant(models.Model):
    """Smaller copy of a picture, made before publication."""

    file = models.ForeignKey(File, on_delete=models.CASCADE, related_name="variants")
    # Its place among the file's variants, which is part of its key in the store.
    index = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=32)
    width = models.PositiveIntegerField()
    height = models.PositiveIntegerField()
    size = models.PositiveBigIntegerField()
    sha256 = models.CharField(max_length=64)
    content_type = models.CharField(max_length=127)
    extension = models.CharField(max_length=16)

    class Meta:
        ordering = ["index"]
        constraints = [models.UniqueConstraint(fields=["file", "name"], name="cdn_variant_once")]

    def __str__(self) -> str:
        return f"{self.name} of {self.file_id}"


class Permit(models.Model):
    """Right to upload one file, by an address that carries a token.

    `size`: the most bytes that may come. `reserved_bytes`: counted as reserved until publication, with room for
    variants. `payer_id`: the namespace whose credits are held under `hold_key`, as a plain id; empty if none are held.
    `expires_at`: the end of the address; the first byte moves it to `upload_until`. `received_bytes`: how many stored
    bytes a client may rely on.
    """

    file = models.OneToOneField(File, on_delete=models.CASCADE, primary_key=True, related_name="permit")
    token_hash = models.CharField(max_length=64, unique=True)
    state = models.CharField(max_length=16, choices=PermitState.choices, default=PermitState.OPEN)
    size = models.PositiveBigIntegerField()
    reserved_bytes = models.PositiveBigIntegerField()
    payer_id = models.CharField(max_length=24, blank=True, default="")
    hold_key = models.CharField(max_length=64, blank=True, default="")
    lease_owner = models.CharField(max_length=64, blank=True, default="")
    lease_until = models.DateTimeField(null=True)
    received_bytes = models.PositiveBigIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    upload_until = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["expires_at"], condition=Q(state__in=["open", "receiving"]), name="cdn_permit_expires"
            ),
            models.Index(fields=["state", "-file"], name="cdn_permit_by_state"),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(received_bytes__lte=models.F("size")), name="cdn_received_within_size")
        ]

    def __str__(self) -> str:
        return f"permit of {self.file_id}"


class FileEvent(AccountEvent):
    """Audit entry of a file, or of a limit, which has no `file_id`."""

    subject_field = "file_id"

    file_id = models.CharField(max_length=24, blank=True)

    class Meta(AccountEvent.Meta):
        indexes = [
            *AccountEvent.Meta.indexes,
            models.Index(fields=["file_id", "-id"], name="fileevent_of_file"),
        ]


class Withdrawal(models.Model):
    """Removal of the links of a deactivated account's files, by their ids; links up to `after` are gone.

    It is made in the transaction that deactivates, and deleted in the one that activates. `due_at`: when the worker
    goes on, if no process has gone on until then.
    """

    account = models.OneToOneField(Account, on_delete=models.CASCADE, related_name="+")
    after = models.CharField(max_length=24, blank=True, default="")
    due_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"links of {self.account_id}"
