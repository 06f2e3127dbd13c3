"""Domains of users, connected to pages and to ports of workspaces."""
