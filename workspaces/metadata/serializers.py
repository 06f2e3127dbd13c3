"""The body of the metadata routes."""

from __future__ import annotations

from rest_framework import serializers

from common.fields import JSONObject
from common.openapi import Success


class MetadataRequest(serializers.Serializer):
    """Top-level keys to overwrite or add; null is a value like any other."""

    metadata = JSONObject()


class MetadataResponse(Success):
    metadata = JSONObject()
