"""Starts, watches and stops the processes of one instance. Plain Python: no Django, no database."""
