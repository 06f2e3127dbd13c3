"""One request to send: its row, the fan-out to the account's devices, and the counts that answer it."""
