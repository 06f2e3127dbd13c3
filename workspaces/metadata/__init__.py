"""Metadata of a workspace: any JSON values by key, set by its owner."""
