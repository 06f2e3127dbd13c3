"""Searching the files of a sandbox, by ripgrep in its guest: `{sandbox.url}/search...`."""
