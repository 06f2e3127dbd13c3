"""Releases of pages on disk: received from a guest, stored, and read by the edge. Free of Django."""
