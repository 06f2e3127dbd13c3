"""The `placement` of a create (wire contract, section 11): what its owner says about the host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from accounts.actors import Actor
from accounts.models import Account, Plan
from common.errors import NotFound
from namespaces.models import Namespace
from vmbackend.errors import ImageWrongPlatform
from vmbackend.images.reference import parse_reference
from vmbackend.models import Host
from workspaces.errors import ResourceNotAllowed
from workspaces.models import Workspace
from workspaces.placement import Wish
from workspaces.selectors import get_workspace
from workspaces.states import NO_MACHINE, Status

# At the end of a name: `web-1` and `web-2` are of one kind.
NUMBER = re.compile(r"[-_. ]?[0-9]+$")


def require_placement_allowed(plan: Plan, placement: Mapping[str, Any]) -> None:
    """Raise ResourceNotAllowed if a create has a `placement` and the plan forbids it."""
    if any(placement.values()) and not plan.allows_placement:
        message = f"The plan {plan.label} does not allow `placement`; leave it out."
        raise ResourceNotAllowed(message, details={"resource": "placement"})


def wish_of_create(actor: Actor, namespace: Namespace, placement: Mapping[str, Any], *, name: str, image: str) -> Wish:
    """Return what a create asks of its host. Raise NotFound (`near` is no workspace that the actor may see)."""
    near = None
    if placement.get("near"):
        try:
            near = get_workspace(actor, placement["near"]).host_id
        except NotFound:
            raise NotFound("placement.near: there is no such workspace.") from None
    others = Workspace.objects.filter(account=actor.account, namespace=namespace)
    return _wish(placement, others, name=name, image=image, host=near)


def wish_of_retry(account: Account, workspace: Workspace) -> Wish:
    """Return what another attempt at a creation asks of its host: the same, as far as what it names is still there.

    A host of the architecture for which the image was not made is tried again only if there is no other.
    """
    placement = workspace.placement
    near = Workspace.objects.filter(account=account, pk=placement["near"]) if placement.get("near") else None
    host = near.values_list("host_id", flat=True).first() if near is not None else None
    others = Workspace.objects.filter(account=account, namespace=workspace.namespace).exclude(pk=workspace.pk)
    is_wrong = workspace.host is not None and workspace.provisioning_error_code == ImageWrongPlatform.code
    wrong_arch = workspace.host.arch if workspace.host and is_wrong else ""
    return _wish(placement, others, name=workspace.name, image=workspace.image, host=host, wrong_arch=wrong_arch)


def _wish(placement: Mapping[str, Any], others: Any, *, name: str, image: str, **more: Any) -> Wish:
    apart, zones = _held(others, name) if placement.get("spread") else (frozenset[str](), frozenset[str]())
    return Wish(
        labels=placement.get("labels") or {},
        apart=apart,
        zones=zones if placement.get("spread") == "zone" else frozenset(),
        image=str(parse_reference(image)),
        **more,
    )


def _held(others: Any, name: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the hosts with workspaces of the same kind, and their zones. One query."""
    alike = f"^{re.escape(NUMBER.sub('', name) or name)}([-_. ]?[0-9]+)?$"
    kept = others.exclude(status__in=NO_MACHINE | {Status.DELETING}).filter(name__regex=alike)
    found = Host.objects.filter(pk__in=kept.values("host")).values_list("pk", "zone")
    hosts, zones = zip(*found, strict=True) if found else ((), ())
    return frozenset(hosts), frozenset(zones)
