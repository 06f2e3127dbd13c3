"""Queries of the log routes."""

from __future__ import annotations

from rest_framework import serializers

MAX_TAIL_LINES = 10_000


class LogQuery(serializers.Serializer):
    source = serializers.CharField(default="boot", max_length=64)  # type: ignore[assignment]  # the specification's name
    tail_lines = serializers.IntegerField(min_value=1, max_value=MAX_TAIL_LINES, default=100)


class StreamQuery(serializers.Serializer):
    """`tail_lines` 0: only what comes from now on. The stream holds at most the last 1,000 lines."""

    tail_lines = serializers.IntegerField(min_value=0, max_value=MAX_TAIL_LINES, default=100)
