"""Backup of an instance, which may run, and its restore (docs/operations.md, "Backup")."""
