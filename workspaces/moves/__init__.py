"""Moves of workspaces from one host to another (wire contract, section 11)."""
