"""Connections that the platform itself opens to places that users name. Free of Django, below every other package."""
