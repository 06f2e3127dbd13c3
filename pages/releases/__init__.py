"""Releases of pages on disk: what is received from a guest, how it is stored, what the edge reads. Free of Django."""
