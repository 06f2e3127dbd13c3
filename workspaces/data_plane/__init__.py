"""Parts of both levels inside a machine: that of sandboxes, and the runtime of workspaces."""
