"""Hooks by which higher modules of the CDN act on what the services do (docs/architecture.md, Layers)."""

from __future__ import annotations

from common.hooks import Hook

# (file id): all bytes have arrived; called after the commit. A call that is lost is made up for by a sweep.
file_received: Hook[[str], None] = Hook("cdn.file_received")
# (file ids): what is stored of them is to be removed; called after the commit. A call that is lost is made up for by
# the sweep for bytes without a row.
bytes_withdrawn: Hook[[list[str]], None] = Hook("cdn.bytes_withdrawn")
