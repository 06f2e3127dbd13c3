"""Selectors of files and counters within the scope of an actor. Files outside do not exist for the actor (404)."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection
from django.db.models import Q, QuerySet

from accounts.actors import Actor
from accounts.permissions import OTHER_NAMESPACE, require_named_namespace
from accounts.scopes import Scope
from cdn.errors import FileNotKept
from cdn.models import File, NamespaceQuota, Pool
from cdn.policy import EffectivePolicy, Layer, combined, plan_layer, row_layer, template_layer
from cdn.pools import personal_key, pool_of, rolled
from cdn.states import FileStatus
from common.errors import Forbidden, ValidationError
from namespaces.models import Namespace
from namespaces.selectors import by_slug, own_namespace, visible_namespaces

TAGS_LISTED = 1000
_TAGS = """
SELECT DISTINCT tag COLLATE "C" FROM cdn_file, jsonb_array_elements_text(tags) AS tag
WHERE id IN ({files}) ORDER BY 1 LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class AccountPart:
    """Part of an account: one namespace, its files without one (`is_personal`), or all of it."""

    account_id: str
    namespace: Namespace | None = None
    is_personal: bool = False

    @property
    def files(self) -> Q:
        """Return the condition for files in this part."""
        if self.namespace is not None:
            return Q(namespace=self.namespace)
        return Q(account_id=self.account_id, namespace=None) if self.is_personal else Q(account_id=self.account_id)

    @property
    def pool_key(self) -> str:
        if self.namespace is not None:
            return self.namespace.pk
        return personal_key(self.account_id) if self.is_personal else self.account_id

    @property
    def pool(self) -> Pool:
        """Return the present counters. One query."""
        return pool_of(self.pool_key)


def part_of(actor: Actor, namespace: str | None, *, personal: bool = False) -> AccountPart:
    """Return the part of the account that a request names, within the reach of its credential.

    A credential of a namespace reads that namespace. Raise Forbidden if the credential is bound to another namespace,
    or to one at all. Raise NotFound, and ValidationError if both are named.
    """
    if namespace is not None and personal:
        raise ValidationError(details={"scope": ["Files without a namespace are in none. Leave out one of the two."]})
    if actor.scope is Scope.NAMESPACE:
        if personal:
            raise Forbidden(OTHER_NAMESPACE)
        require_named_namespace(actor, namespace)
        return AccountPart(actor.account.pk, own_namespace(actor))
    found = by_slug(actor.account, namespace) if namespace is not None else None
    return AccountPart(actor.account.pk, found, personal)


def upload_namespace(actor: Actor, slug: str | None) -> Namespace | None:
    """Return the namespace of an upload: the named one, or the credential's; None if the file is unassigned.

    Raise as `part_of` does.
    """
    return part_of(actor, slug).namespace


def visible_files(actor: Actor) -> QuerySet[File]:
    """Return the files of the account, or of the namespace that the credential is bound to."""
    rows = File.objects.filter(account=actor.account, purge=False).select_related("namespace")
    return rows.filter(namespace_id=actor.namespace_id) if actor.scope is Scope.NAMESPACE else rows


def get_file(actor: Actor, file_id: str) -> File:
    """Return a file. Raise FileNotKept if there is none or the actor may not see it."""
    found = visible_files(actor).filter(pk=file_id).first()
    if found is None:
        raise FileNotKept
    return found


def listed_files(part: AccountPart, status: str | None, tag: str | None = None) -> QuerySet[File]:
    """Return files with their variants, newest first. Without a status, all files that are not in the trash."""
    rows = File.objects.filter(part.files, purge=False).order_by("-created_at", "-id")
    rows = rows.filter(status=status) if status else rows.exclude(status=FileStatus.TRASHED)
    rows = rows if tag is None else rows.filter(tags__contains=[tag])
    return rows.select_related("namespace").prefetch_related("variants")


def count_files(part: AccountPart, status: str | None, tag: str | None = None) -> int:
    """Return the number of `listed_files`, by the counters: COUNT over 100,000 rows takes as long as all of the rest.

    Files that are uploaded or processed, and rejected ones, are few and are counted. So are files with a tag.
    """
    if tag is not None:
        return listed_files(part, status, tag).count()
    if status in {FileStatus.UPLOADING, FileStatus.PROCESSING, FileStatus.REJECTED}:
        return File.objects.filter(part.files, status=status, account_id=part.account_id).count()
    pool = part.pool
    if status == FileStatus.TRASHED:
        return pool.trashed_files
    if status == FileStatus.ACTIVE:
        return pool.stored_files
    return pool.stored_files + pool.reserved_files + pool.rejected_files


def tags_of(part: AccountPart) -> list[str]:
    """Return the tags of files that are neither rejected nor in the trash, in order, each once."""
    gone = [FileStatus.REJECTED, FileStatus.TRASHED]
    files = File.objects.filter(part.files, purge=False).exclude(status__in=gone).order_by().values("pk")
    sql, parameters = files.query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(_TAGS.format(files=sql), [*parameters, TAGS_LISTED])
        return [tag for (tag,) in cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class NamespaceUse:
    """Namespace with its limits and counters."""

    namespace: Namespace
    pool: Pool
    policy: EffectivePolicy

    @property
    def override(self) -> Layer | None:
        return self.policy.layer("namespace")


def listed_namespaces(actor: Actor, search: str) -> QuerySet[Namespace]:
    """Return the namespaces that the actor reaches, newest first.

    `search` is part of a name or slug, in any case.
    """
    found = visible_namespaces(actor).order_by("-created_at", "-id")
    return found.filter(Q(name__icontains=search) | Q(slug__icontains=search)) if search else found


def uses_of(actor: Actor, namespaces: list[Namespace]) -> list[NamespaceUse]:
    """Return limits and counters of namespaces, by four queries for any number."""
    ids = [row.pk for row in namespaces]
    pools = {row.pk: rolled(row) for row in Pool.objects.filter(pk__in=ids)}
    overrides = {row.pk: row_layer("namespace", row) for row in NamespaceQuota.objects.filter(pk__in=ids)}
    common = [layer for layer in (template_layer(actor.account.pk), plan_layer(actor.account.plan_id)) if layer]
    uses = []
    for row in namespaces:
        layers = [overrides[row.pk], *common] if row.pk in overrides else common
        policy = combined(layers, actor.account.plan_id, is_namespace=True)
        uses.append(NamespaceUse(row, pools.get(row.pk) or Pool(owner=row.pk), policy))
    return uses
