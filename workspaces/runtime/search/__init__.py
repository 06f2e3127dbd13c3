"""Searching the files of a workspace, by ripgrep in its guest: `{url}/files/search...`."""
