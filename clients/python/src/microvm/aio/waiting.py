"""What waits: the other side has its own."""

from __future__ import annotations

from asyncio import Lock, sleep
from asyncio import to_thread as in_thread

__all__ = ["Lock", "in_thread", "sleep"]
