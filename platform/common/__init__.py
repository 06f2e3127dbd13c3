"""Shared by all apps: errors and their one body, pagination, durations, ids, secrets. No models here."""
