"""Push notifications: send tokens of workspaces, devices of accounts, and the process that sends to both providers."""
