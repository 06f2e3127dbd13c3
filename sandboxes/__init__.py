"""Sandboxes: workspaces of their own kind with one token and one address. Not built yet; the wire contract's section 4."""
