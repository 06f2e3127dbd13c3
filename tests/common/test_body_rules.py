"""Which views declare a rule for bodies, and what requests to their addresses may send."""

from __future__ import annotations

import pytest
from django.conf import settings

from common.body_rules import RAW, UNLIMITED, body_limit, is_streamed

FILES = "/workspace/ws_a/overlay/files"


@pytest.mark.parametrize(
    ("method", "path", "content_type", "limit", "streamed"),
    [
        ("POST", "/workspace", "application/json", settings.BODY_LIMIT, False),
        ("POST", "/nothing/here", RAW, settings.BODY_LIMIT, False),
        ("POST", FILES, f"{RAW.upper()}; x=y", settings.FILE_STREAM_LIMIT, True),
        ("POST", FILES, "application/json", settings.FILE_WRITE_LIMIT * 4 // 3 + 64 * 1024, False),
        ("GET", FILES, RAW, settings.BODY_LIMIT, False),
        ("POST", f"{FILES}/more", RAW, settings.BODY_LIMIT, False),
        ("POST", "/workspace/ws_a/exec/key/input", RAW, min(1024 * 1024, settings.BODY_LIMIT), False),
        ("POST", "/workspace/ws_a/exec", "application/json", settings.BODY_LIMIT, False),
        ("PATCH", "/cdn/uploads/token", "application/offset+octet-stream", UNLIMITED, True),
        # Served or not: nothing of it is stored before somebody knows that no view takes it.
        ("DELETE", "/cdn/uploads/token", "", UNLIMITED, True),
        ("OPTIONS", "/cdn/uploads/token", "", settings.BODY_LIMIT, False),
        ("POST", "/cdn/api", "multipart/form-data", UNLIMITED, True),
        ("GET", "/cdn/api/limits", "", settings.BODY_LIMIT, False),
    ],
)
def test_a_request_may_send_what_its_view_declares(
    method: str, path: str, content_type: str, limit: int, streamed: bool
) -> None:
    assert body_limit(method, path, content_type) == limit
    assert is_streamed(method, path, content_type) is streamed
