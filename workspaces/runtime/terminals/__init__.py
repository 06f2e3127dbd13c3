"""Terminals by HTTP: `{url}/terminals`."""
