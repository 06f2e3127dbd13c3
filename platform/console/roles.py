"""The roles of staff: four groups, which a migration makes, and their permissions, which each `migrate` makes as they
are here.

A model that comes later has its permissions after the last migration only, so the groups are filled then, too: those
who read all can read it. Other groups are left alone: make one for what is between roles.

Secrets, environments, contents of files and tokens are on no page, whatever the role; but who makes a credential or an
API key in the admin is shown its secret once.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, Permission
from django.db import transaction

SUPPORT, OPERATOR, BILLING, ADMINISTRATOR = "Support", "Operator", "Billing", "Administrator"

# What an operator changes, by actions; and what an operator may also delete, reinstall or revoke for good.
_OPERATED = {
    "workspaces.workspace",
    "sandboxes.sandbox",
    "namespaces.namespace",
    "webhooks.subscription",
    "webhooks.delivery",
    "certificates.certificate",
    "domains.customdomain",
    "pages.page",
    "cdn.file",
    "notifications.sendtoken",
    "notifications.device",
    "accounts.credential",
    "assist.apikey",
    "vmbackend.host",
}
_NOT_DELETED = {"vmbackend.host", "webhooks.subscription", "webhooks.delivery", "certificates.certificate"}
_BILLING_VIEWS = {
    "accounts.account",
    "accounts.plan",
    "namespaces.namespace",
    "workspaces.billingcycle",
    "workspaces.meterrecord",
    "workspaces.usage",
    "cdn.pool",
    "cdn.namespacequota",
    "cdn.planlimits",
}
_BILLING_WRITES = {"credits.change_balance", "credits.add_rate", "credits.change_rate", "credits.delete_rate"}
# Entries are never written by hand.
_STAFF = {"staff.view_staffentry", "staff.open_terminal", "staff.reset_second_factor"}
_USERS = {f"auth.{verb}_{model}" for verb in ("view", "add", "change", "delete") for model in ("user", "group")}


def _permission(verb: str, label: str) -> str:
    app, _, model = label.partition(".")
    return f"{app}.{verb}_{model}"


def role_permissions(known: set[str]) -> dict[str, set[str]]:
    """For each role its permissions, of the known ones, all as `app.codename`."""
    own = {name for name in known if name.partition(".")[0] in settings.APPS}
    views = {name for name in own if name.partition(".")[2].startswith("view_")}
    operated = {_permission("change", label) for label in _OPERATED}
    operated |= {_permission("delete", label) for label in _OPERATED - _NOT_DELETED}
    operated.add("workspaces.add_streamtoken")  # live numbers and the console of a workspace
    billing = {_permission("view", label) for label in _BILLING_VIEWS}
    billing |= {name for name in views if name.startswith("credits.")} | _BILLING_WRITES
    administered = {name for name in own if not name.startswith("staff.")} | _STAFF | _USERS
    return {SUPPORT: views, OPERATOR: views | operated, BILLING: billing, ADMINISTRATOR: administered}


def fill_roles(groups: type[Group], permissions: type[Permission]) -> None:
    """Make the groups, and give them their permissions as they are here, of those that exist. Idempotent.

    For the models as they are, or as a migration has them.
    """
    rows = permissions.objects.values_list("content_type__app_label", "codename", "pk")
    known = {f"{app}.{codename}": pk for app, codename, pk in rows}
    for name, wanted in role_permissions(set(known)).items():
        group, _ = groups.objects.get_or_create(name=name)
        group.permissions.set([known[permission] for permission in sorted(wanted & known.keys())])


@transaction.atomic
def sync_roles() -> None:
    """Do what `fill_roles` does, but raise RuntimeError if a role names a permission that no model has."""
    rows = Permission.objects.values_list("content_type__app_label", "codename")
    known = {f"{app}.{codename}" for app, codename in rows}
    if missing := set().union(*role_permissions(known).values()) - known:
        raise RuntimeError(f"There are no such permissions: {', '.join(sorted(missing))}")
    fill_roles(Group, Permission)


def after_migrate(**kwargs: Any) -> None:
    """`post_migrate` of the last app, when the permissions of all apps are there."""
    sync_roles()
