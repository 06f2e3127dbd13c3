"""View for the live part of a workspace's page in the admin: gives a token that reads the event streams."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.utils import unquote
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, JsonResponse
from django.views.decorators.http import require_POST

from common.errors import NotFound
from staff.audit import StaffMember, Target, record_entry
from workspaces.models import Workspace
from workspaces.streams.staff_tokens import LIFE, PERMISSION, stream_token_create


@require_POST
def live_access(request: HttpRequest, object_id: str, model_admin: Any) -> JsonResponse:
    """Return a new token with the addresses that it reads. This needs PERMISSION and the permission to view the
    workspace, and is recorded in both audit logs.

    Answers 404 if the workspace does not exist (any more).
    """
    row: Workspace | None = model_admin.get_object(request, unquote(object_id))
    if not request.user.has_perm(PERMISSION) or not model_admin.has_view_permission(request, row):
        raise PermissionDenied
    assert isinstance(request.user, User)  # noqa: S101  # the admin lets in no other
    if row is None:
        raise Http404
    member = StaffMember.of(request)
    try:
        with transaction.atomic():
            token = stream_token_create(workspace=row, user=request.user, actor=member.actor)
            record_entry(member, "view_live", Target.of(row))
    except NotFound:
        raise Http404 from None
    answer = JsonResponse(
        {
            "token": token,
            "seconds": int(LIFE.total_seconds()),
            "stats": f"/workspace/{row.pk}/stats/stream",
            "log": f"/workspace/{row.pk}/logs/stream/boot",
        }
    )
    answer["Cache-Control"] = "no-store"
    return answer
