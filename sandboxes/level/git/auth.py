"""`auth` of the requests of git: the credentials of one call."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from common.fields import StrictChar
from sandboxes.level.git.agent import NotAKey, read_key
from sandboxes.level.git.credentials import Credentials, Login
from sandboxes.level.git.fields import SecretField

TOKEN, SSH = "token", "ssh"
MAX_PASSWORD = 4000  # bytes
MAX_USERNAME = 250
MAX_KEY = 8192
# GitHub takes any name beside a token, GitLab and Gitea too.
TOKEN_USER = "x-access-token"  # noqa: S105  # a name
_FIELDS = {TOKEN: {"type", "username", "password", "token"}, SSH: {"type", "sshKey"}}


class GitAuth(serializers.Serializer[Any]):
    """Credentials for this call and the host of the remote alone; written nowhere."""

    type = StrictChar(help_text="`token`: for http and https. `ssh`: for ssh and user@host:path.")
    username = SecretField(max_bytes=MAX_USERNAME, help_text=f"Default with a token: `{TOKEN_USER}`.")
    password = SecretField(max_bytes=MAX_PASSWORD, help_text="Or `token`.")
    token = SecretField(max_bytes=MAX_PASSWORD)
    sshKey = SecretField(
        max_bytes=MAX_KEY, lines=True, help_text="A private key without a passphrase: Ed25519, ECDSA or RSA."
    )

    def validate_type(self, value: str) -> str:
        if value not in _FIELDS:
            raise serializers.ValidationError("`token` or `ssh` is required.")
        return value

    def validate(self, attrs: dict[str, Any]) -> Credentials:
        """Return the credentials themselves. Raise DRF's ValidationError."""
        for name in attrs.keys() - _FIELDS[attrs["type"]]:
            raise serializers.ValidationError({name: "This field is not allowed with this `type`."})
        return _key(attrs) if attrs["type"] == SSH else _login(attrs)


def _login(attrs: dict[str, Any]) -> Login:
    if ("password" in attrs) == ("token" in attrs):
        raise serializers.ValidationError({"token": "Give either `token` or `password`."})
    username = attrs.get("username", TOKEN_USER if "token" in attrs else None)
    if username is None or ":" in username:
        raise serializers.ValidationError({"username": "A name without a colon is required."})
    return Login(username, attrs.get("token") or attrs["password"])


def _key(attrs: dict[str, Any]) -> Credentials:
    if "sshKey" not in attrs:
        raise serializers.ValidationError({"sshKey": "This field is required."})
    try:
        return read_key(attrs["sshKey"])
    except NotAKey as exc:
        raise serializers.ValidationError({"sshKey": str(exc)}) from None
