"""A page with terminals, at the address of a sandbox: `GET {sandbox.url}/terminal`."""
