"""Requests and responses of the account routes."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from accounts.models import Credential
from accounts.scopes import Scope
from common.fields import StrictChar, StrictInteger
from common.openapi import Success
from common.serializers import Timestamp
from common.spellings import WorkspaceIdRequest

TOKEN_SCOPES = [Scope.ACCOUNT, Scope.NAMESPACE, Scope.WORKSPACE]


class TokenRequest(WorkspaceIdRequest):
    scope = serializers.ChoiceField(choices=[scope.value for scope in TOKEN_SCOPES])
    namespace = StrictChar(required=False, max_length=128)
    workspaceId = StrictChar(required=False, max_length=128, help_text="Also read as `workspace_id`.")
    ttl = StrictInteger(min_value=60, max_value=3600, default=900, help_text="Seconds.")
    label = StrictChar(  # type: ignore[assignment]  # the contract's name
        required=False, default="", allow_blank=True, max_length=120
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return _bound(attrs, "workspaceId")


class TokenResponse(Success):
    token = serializers.CharField()
    expiresAt = Timestamp(source="expires_at")
    scope = serializers.ChoiceField(choices=[scope.value for scope in TOKEN_SCOPES])
    ttl = serializers.IntegerField()


class CredentialRequest(WorkspaceIdRequest):
    name = StrictChar(required=False, default="", allow_blank=True, max_length=120)
    # Without a default: the widest scope must be asked for.
    scope = serializers.ChoiceField(choices=Scope.choices)
    namespace = StrictChar(required=False, max_length=128)
    workspace_id = StrictChar(required=False, max_length=128, help_text="Also read as `workspaceId`.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return _bound(attrs, "workspace_id")


def _bound(attrs: dict[str, Any], workspace_field: str) -> dict[str, Any]:
    """Return the data with what the scope is bound to. Raise ValidationError that names the field of this request."""
    for scope, field in ((Scope.NAMESPACE, "namespace"), (Scope.WORKSPACE, workspace_field)):
        if attrs["scope"] == scope and field not in attrs:
            raise serializers.ValidationError({field: [f"Required for the {scope} scope."]})
    return attrs


class CredentialBody(serializers.Serializer[Any]):
    id = serializers.CharField()
    client_id = serializers.CharField()
    name = serializers.CharField()
    scope = serializers.ChoiceField(choices=Scope.choices)
    namespace = serializers.SerializerMethodField()
    workspace_id = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)

    def get_namespace(self, credential: Credential) -> str | None:
        return credential.namespace_slug or None

    def get_workspace_id(self, credential: Credential) -> str | None:
        return credential.workspace_id or None


class CredentialResponse(Success):
    credential = CredentialBody()


class CredentialListResponse(Success):
    credentials = CredentialBody(many=True)
    total = serializers.IntegerField()
    page = serializers.IntegerField()
    limit = serializers.IntegerField()


class NewCredentialResponse(CredentialResponse):
    client_secret = serializers.CharField(source="secret", help_text="Shown once.")
