"""Request and response of the metadata routes."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from common.fields import JSONObject
from common.openapi import Success


class MetadataRequest(serializers.Serializer[Any]):
    """Top-level keys to overwrite or add; a null is stored as a value."""

    metadata = JSONObject()


class MetadataResponse(Success):
    metadata = JSONObject()
