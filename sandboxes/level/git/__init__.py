"""Git in a sandbox, by the git of its image: `{sandbox.url}/git/...`."""
