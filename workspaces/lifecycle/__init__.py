"""Lifetime and rest of a workspace: TTL, restart policy, idle sleep, and the sweep that enforces them."""
