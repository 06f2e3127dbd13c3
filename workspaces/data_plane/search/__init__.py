"""Searches inside a machine, for the holder of a token."""
