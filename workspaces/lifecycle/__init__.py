"""How long a workspace lives and when it rests: TTL, restart policy, idle sleep, and the sweep that enforces them."""
