"""Logs of a workspace. The console log lies on its host; that host's vmhost reads it."""
