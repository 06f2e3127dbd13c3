"""What the owner keeps with a workspace: any JSON values by key."""
