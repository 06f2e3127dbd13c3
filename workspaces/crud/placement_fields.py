"""The `placement` object of a create's request. Not in `wishes`: the worker, which uses that, loads no serializers."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework import serializers

from common.fields import StrictChar

SPREADS = ("host", "zone")
ANY_VALUE = "*"


class Placement(serializers.Serializer[Any]):
    """Wishes about the host of a new machine."""

    labels = serializers.DictField(
        child=StrictChar(max_length=63, allow_blank=True),
        required=False,
        allow_null=True,
        help_text="Labels that the host must have, of those that the platform offers.",
    )
    spread = serializers.ChoiceField(
        SPREADS,
        required=False,
        allow_null=True,
        help_text="Not on the host, or in the zone, of the account's other workspaces of this namespace whose names "
        "differ from this one's only by a number at their end, while there is another: a wish, never a refusal.",
    )
    near = StrictChar(
        required=False, allow_null=True, max_length=128, help_text="The id of a workspace whose host it must be."
    )

    def validate_labels(self, value: dict[str, str] | None) -> dict[str, str]:
        offered = settings.ENV.placement_labels
        wrong = [
            f"{key}={label}"
            for key, label in (value or {}).items()
            if f"{key}={label}" not in offered and f"{key}={ANY_VALUE}" not in offered
        ]
        if wrong:
            known = f"it offers {', '.join(offered)}" if offered else "it offers none"
            raise serializers.ValidationError(f"Not offered by this platform: {', '.join(wrong)}; {known}.")
        return value or {}
