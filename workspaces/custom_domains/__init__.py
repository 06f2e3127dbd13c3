"""Custom domains of workspaces: further names of their public ports."""
