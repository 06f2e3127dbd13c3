"""Resetting a workspace's file system to its image."""
