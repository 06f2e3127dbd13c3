"""Request and response of the metadata routes."""

from __future__ import annotations

from rest_framework import serializers

from common.fields import JSONObject
from common.openapi import Success


class MetadataRequest(serializers.Serializer):
    """Top-level keys to overwrite or add; a null is stored as a value."""

    metadata = JSONObject()


class MetadataResponse(Success):
    metadata = JSONObject()
