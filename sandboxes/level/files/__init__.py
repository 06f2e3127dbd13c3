"""The files of a sandbox: `{sandbox.url}/files/...`."""
