"""Sandboxes: workspaces of their own kind with one token and one address. Not built yet (wire contract, section 4)."""
