"""Requests and responses of terminals."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from common.fields import BoundedList, StrictInteger
from common.openapi import Success
from common.serializers import ResponseSerializer
from workspaces.data_plane.fields import ArgumentField
from workspaces.fields import CMD_BYTES, CMD_ITEMS
from workspaces.runtime.query_fields import QueryInteger
from workspaces.runtime.terminals.services import MAX_SCROLLBACK

MAX_SIZE = 1000
MIN_SCROLLBACK, SCROLLBACK = 1024, 65_536


class TerminalRequest(serializers.Serializer[Any]):
    cmd = BoundedList(
        child=ArgumentField(),
        max_length=CMD_ITEMS,
        required=False,
        default=list,
        help_text="A program and its arguments. Default: the user's shell.",
    )
    cols = StrictInteger(min_value=1, max_value=MAX_SIZE, default=120)
    rows = StrictInteger(min_value=1, max_value=MAX_SIZE, default=30)
    scrollback_size = StrictInteger(
        min_value=MIN_SCROLLBACK,
        max_value=MAX_SCROLLBACK,
        default=SCROLLBACK,
        help_text="Bytes of output that `scrollback` shows at most.",
    )

    def validate_cmd(self, value: list[str]) -> list[str]:
        if value and not value[0]:
            raise serializers.ValidationError("The command must not be empty.")
        if sum(len(word.encode("utf-8", "replace")) for word in value) > CMD_BYTES:
            raise serializers.ValidationError(f"At most {CMD_BYTES} bytes.")
        return value


class ScrollbackQuery(serializers.Serializer[Any]):
    bytes = QueryInteger(
        min_value=0,
        max_value=MAX_SCROLLBACK,
        required=False,
        default=None,
        help_text="At most so many of the last bytes. Default: `scrollback_size`.",
    )


class RuntimeTerminalObject(ResponseSerializer):
    """A terminal."""

    id = serializers.CharField(
        help_text="`1` to `255`. Of those that are free, the one that was used least recently comes next."
    )
    command = serializers.ListField(
        child=serializers.CharField(), help_text="The first 4 KiB of it. Empty: the user's shell."
    )
    cols = serializers.IntegerField()
    rows = serializers.IntegerField()
    alive = serializers.BooleanField(help_text="False once its program has ended; it is kept for ten minutes then.")
    exit_code = serializers.IntegerField(
        allow_null=True, help_text="128+N if signal N ended the program; null while it runs."
    )
    created_at = serializers.DateTimeField()
    scrollback_size = serializers.IntegerField()


class TerminalResponse(Success, RuntimeTerminalObject):
    """A terminal at top level."""


class TerminalsResponse(Success):
    terminals = RuntimeTerminalObject(many=True)


class TerminalRemovedResponse(Success):
    terminal_id = serializers.CharField()


class ScrollbackResponse(Success):
    scrollback = serializers.CharField(help_text="Base64.")
    size = serializers.IntegerField(help_text="Bytes in it.")
    scrollback_size = serializers.IntegerField(help_text="As the terminal's creator wanted it.")
    max_scrollback_size = serializers.IntegerField(help_text="The most that a creator may want.")
    alive = serializers.BooleanField()
    exit_code = serializers.IntegerField(allow_null=True)
