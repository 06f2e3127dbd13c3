"""Requests of the power routes."""

from __future__ import annotations

from rest_framework import serializers

from common.fields import StrictBoolean


class StartRequest(serializers.Serializer):
    force = StrictBoolean(default=False)
