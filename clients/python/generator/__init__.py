"""Writes the client's routes and types from the platform's API description, and the synchronous client."""
