"""Watchers of folders, kept by the guest: `{url}/watchers`."""
