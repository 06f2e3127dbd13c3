"""One command of a sandbox, run to its end: `{sandbox.url}/terminal`."""
