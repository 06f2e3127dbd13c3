"""Push notifications: send tokens, devices and the fan-out to their providers (wire contract, section 6)."""
