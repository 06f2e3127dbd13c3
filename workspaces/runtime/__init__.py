"""The runtime: one address and one token for everything inside a running workspace (wire contract, section 4b)."""
