"""The runtime of workspaces (wire contract, section 4b)."""
