"""The sandbox level: what a sandbox's own token reaches at its address (wire contract, section 4)."""
