"""Code assistance: three routes that ask a model (wire contract, section 8)."""
