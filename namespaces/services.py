"""The only writers of namespaces."""

from __future__ import annotations

from django.db import transaction

from accounts.models import Account
from common.errors import Conflict, ValidationError
from namespaces.models import Namespace, Status, Type

DEFAULT_SLUG = "default"


def default_namespace_create(account: Account) -> None:
    """The first namespace of an account; runs in the transaction that creates the account."""
    Namespace.objects.create(account=account, name="Default", slug=DEFAULT_SLUG, type=Type.DEFAULT, is_default=True)


@transaction.atomic
def namespace_save(namespace: Namespace) -> Namespace:
    """Create a namespace or change it, on behalf of staff.

    `status` and the two reasons for a suspension are made consistent: suspended exactly while there is a reason. A
    namespace marked as default replaces the account's former one. Raises ValidationError where a default would be left
    without a successor.
    """
    _apply_suspension(namespace)
    others = Namespace.objects.filter(account=namespace.account).exclude(pk=namespace.pk)
    if namespace.is_default:
        others.filter(is_default=True).update(is_default=False)
    elif not others.filter(is_default=True).exists():
        raise ValidationError(details={"is_default": ["An account needs a default namespace; mark another one first."]})
    namespace.save()
    return namespace


def namespace_delete(namespace: Namespace) -> None:
    """Delete a namespace. Raises Conflict for the default one, ProtectedError while it has workspaces."""
    if namespace.is_default:
        raise Conflict("The default namespace cannot be deleted; mark another one as default first.")
    namespace.delete()


def _apply_suspension(namespace: Namespace) -> None:
    former = Namespace.objects.filter(pk=namespace.pk).first()
    was_suspended = former is not None and former.status == Status.SUSPENDED
    if namespace.status == Status.SUSPENDED and not was_suspended and not namespace.suspended_by_quota:
        namespace.suspended_by_hand = True
    if was_suspended and namespace.status != Status.SUSPENDED:
        namespace.suspended_by_hand = namespace.suspended_by_quota = False
    if namespace.suspended_by_hand or namespace.suspended_by_quota:
        namespace.status = Status.SUSPENDED
    elif namespace.status == Status.SUSPENDED:
        namespace.status = Status.ACTIVE
