"""Machines of the platform: how they join and leave, and what staff do with them by the API."""
