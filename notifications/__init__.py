"""Push notifications from workspaces. Not built yet; section 6."""
