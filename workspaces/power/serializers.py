"""Requests of the power routes."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from common.fields import StrictBoolean


class StartRequest(serializers.Serializer[Any]):
    force = StrictBoolean(default=False)
