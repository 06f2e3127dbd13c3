"""Code that only vmhost and the worker run: the operation engine and its steps, reconcile, machine events, metering.

Nothing that serves a request imports this package (import-linter holds it).
"""
