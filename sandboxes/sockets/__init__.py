"""WebSockets at the address of a sandbox: its terminals (wire contract, section 4)."""
