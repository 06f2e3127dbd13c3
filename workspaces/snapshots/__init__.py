"""Snapshots of workspaces, restores and forks (wire contract, section 10)."""
