"""The part of this app in the process `hooks` (config/app_list.py)."""

from __future__ import annotations

from hosts.guard import HostGuard

PROCESS = HostGuard()
