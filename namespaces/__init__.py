"""Namespaces: groups of workspaces of an account, with their own caps and status."""
