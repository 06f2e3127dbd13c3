"""The shape of the metadata routes' response for the OpenAPI document."""

from __future__ import annotations

from common.fields import JSONObject
from workspaces.api.schemas import Success


class MetadataResponse(Success):
    metadata = JSONObject()
