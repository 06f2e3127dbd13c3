"""Request bodies of the SSH routes."""

from __future__ import annotations

import re
from typing import Any

from rest_framework import serializers

from common.fields import StrictBoolean, StrictChar
from workspaces.ssh.keys import fingerprint, public_key

FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


class KeyRequest(serializers.Serializer):
    """A key to let in, or with `remove` to let in no longer; then its fingerprint is enough."""

    public_key = StrictChar(max_length=8192, help_text="One OpenSSH public key line.")
    remove = StrictBoolean(default=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        text = attrs["public_key"].strip()
        if attrs["remove"] and FINGERPRINT.fullmatch(text):
            return {**attrs, "fingerprint": text}
        try:
            line = public_key(text)
        except serializers.ValidationError as exc:
            raise serializers.ValidationError({"public_key": exc.detail}) from exc
        return {**attrs, "public_key": line, "fingerprint": fingerprint(line)}
