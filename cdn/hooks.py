"""Hooks by which higher modules of the CDN act on events of the services (docs/architecture.md, Layers)."""

from __future__ import annotations

from common.hooks import Hook

# (file id): all bytes have arrived; called after the commit. A sweep makes up for a lost call.
file_received: Hook[[str], None] = Hook("cdn.file_received")
# (file ids): their stored bytes are to be removed; called after the commit. The sweep for bytes without a row makes up
# for a lost call.
bytes_withdrawn: Hook[[list[str]], None] = Hook("cdn.bytes_withdrawn")
