"""Creating, reading, listing, updating and deleting workspaces."""
