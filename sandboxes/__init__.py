"""Sandboxes: workspaces of their own kind, each with a token and an address (wire contract, section 4)."""
